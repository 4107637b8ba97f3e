/**
 * Where a worker finds a broker: where it was told to go at its start, what the operator's config says, and the group that a broker has told it
 * of. The last is kept in the worker's directory, so that it finds the others even where the one it was started with is gone for good.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { writeFileAtomically } from "../files/durable.js";

const MOST = 1_000;

export interface Letters {
  readonly token: string;
  readonly caFingerprint?: string | undefined;
}

export class KnownBrokers {
  readonly #path: string;
  readonly #key: string;
  #given: readonly string[];
  #configured: readonly string[] = [];
  #group: readonly string[];

  /** `path` is the file; what is in it counts only for the same token and CA: others' brokers would only refuse it. */
  constructor(path: string, given: readonly string[], { token, caFingerprint = "" }: Letters) {
    this.#path = path;
    this.#key = createHash("sha256").update(`${token} ${caFingerprint}`).digest("hex").slice(0, 16);
    this.#given = given;
    this.#group = readGroup(path, this.#key);
  }

  /** At the start, those that were named come first. */
  get atFirst(): readonly string[] {
    return [...new Set([...this.#given, ...this.#group])];
  }

  /** Later a broker that has told of its group, or an operator, knows better. */
  get learnt(): readonly string[] {
    return [...new Set([...this.#configured, ...this.#group])];
  }

  get given(): readonly string[] {
    return this.#given;
  }

  isGiven(url: string): boolean {
    return this.#given.includes(url);
  }

  setGiven(urls: readonly string[]): void {
    this.#given = urls;
  }

  setConfigured(urls: readonly string[]): void {
    this.#configured = urls;
  }

  setGroup(urls: readonly string[]): void {
    const some = urls.slice(0, MOST);
    if (some.join() === this.#group.join()) return;
    this.#group = some;
    try {
      writeFileAtomically(this.#path, `${JSON.stringify({ for: this.#key, urls: some })}\n`);
    } catch {
      // It is known in this life; the next one asks the broker that it is started with.
    }
  }
}

function readGroup(path: string, key: string): readonly string[] {
  try {
    const { for: whose, urls } = JSON.parse(fs.readFileSync(path, "utf8")) as { for?: unknown; urls?: unknown };
    if (whose !== key || !Array.isArray(urls)) return [];
    return urls.filter((url): url is string => typeof url === "string" && URL.canParse(url)).slice(0, MOST);
  } catch {
    return [];
  }
}
