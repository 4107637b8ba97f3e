/**
 * Where a worker finds a broker: where it was told to go at its start, what the operator's config says, and the group that a broker has told it
 * of. The last is kept in the worker's directory, so that it finds the others even where the one it was started with is gone for good.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { writeFileAtomically } from "../base/files/durable.js";

const MAX_URLS = 1_000;
/** Brokers that were told of once and are not any more. */
const MOST_EARLIER = 32;

export interface BrokerCredentials {
  readonly token: string;
  readonly caFingerprint?: string | undefined;
}

export class KnownBrokers {
  readonly #path: string;
  readonly #credentialHash: string;
  #explicit: readonly string[];
  #configured: readonly string[] = [];
  #group: readonly string[];
  /** Not among the group when it was last told of: dead, drained, or only just started again. */
  #earlier: readonly string[];

  /** `path` is the file; what is in it counts only for the same token and CA: others' brokers would only refuse it. */
  constructor(path: string, explicit: readonly string[], { token, caFingerprint = "" }: BrokerCredentials) {
    this.#path = path;
    this.#credentialHash = createHash("sha256").update(`${token} ${caFingerprint}`).digest("hex").slice(0, 16);
    this.#explicit = explicit;
    ({ urls: this.#group, earlier: this.#earlier } = readGroup(path, this.#credentialHash));
  }

  /** At the start, those that were named come first. */
  get initialUrls(): readonly string[] {
    return [...new Set([...this.#explicit, ...this.#group, ...this.#earlier])];
  }

  /** Later a broker that has told of its group, or an operator, knows better. */
  get currentUrls(): readonly string[] {
    return [...new Set([...this.#configured, ...this.#group])];
  }

  /** Where none of those answers. */
  get fallbackUrls(): readonly string[] {
    return [...this.#explicit, ...this.#earlier];
  }

  isExplicit(url: string): boolean {
    return this.#explicit.includes(url);
  }

  setExplicit(urls: readonly string[]): void {
    this.#explicit = urls;
  }

  setConfigured(urls: readonly string[]): void {
    this.#configured = urls;
  }

  setGroup(urls: readonly string[]): void {
    const some = urls.slice(0, MAX_URLS);
    if (some.join() === this.#group.join()) return;
    const before = [...this.#group, ...this.#earlier].filter((url) => !some.includes(url));
    this.#earlier = [...new Set(before)].slice(0, MOST_EARLIER);
    this.#group = some;
    const kept: BrokersFile = { credentialHash: this.#credentialHash, urls: some, earlier: this.#earlier };
    try {
      writeFileAtomically(this.#path, `${JSON.stringify(kept)}\n`);
    } catch {
      // It is known in this life; the next one asks the broker that it is started with.
    }
  }
}

interface BrokersFile {
  /** Whose they are. */
  readonly credentialHash: string;
  readonly urls: readonly string[];
  readonly earlier: readonly string[];
}

function readGroup(path: string, key: string): Omit<BrokersFile, "for"> {
  try {
    const kept = JSON.parse(fs.readFileSync(path, "utf8")) as Partial<Record<keyof BrokersFile, unknown>>;
    if (kept.for === key) return { urls: urlsIn(kept.urls), earlier: urlsIn(kept.earlier) };
  } catch {
    // There is none yet, or it is damaged: a broker will tell.
  }
  return { urls: [], earlier: [] };
}

function urlsIn(value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [];
  return value.filter((url): url is string => typeof url === "string" && URL.canParse(url)).slice(0, MAX_URLS);
}
