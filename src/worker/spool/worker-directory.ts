/**
 * A worker's data directory: its identity in `worker-secret`, and undelivered results and output in `results` and
 * `out/`. One process uses it at a time.
 *
 * The brokers that a worker remembers, and their store. It may connect to the brokers named at its start, those in the
 * pushed config, and the group that a broker announces (BROKERS). The group is stored in the worker's directory, so
 * that the worker finds the others even if the broker named at its start is gone for good.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import { acquireLock } from "../../base/files/lock.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import type { Log } from "../../base/log.js";
import { JobId, type WorkerId } from "../../model/ids.js";
import type { RememberedStore } from "../../model/store.js";
import type { BrokerAddress } from "../../protocols/laboro/broker-address.js";
import { SHORTEST_SECRET } from "../../protocols/laboro/codec-fields.js";
import type { JobRecipe, StoreInfo } from "../../protocols/laboro/messages.js";
import { newWorkerSecret, workerIdOf } from "../../protocols/laboro/worker-identity.js";

export interface WorkerDirectory {
  readonly id: WorkerId;
  /** Shown to brokers only. */
  readonly secret: string;
  /** Where spooled results are kept. */
  readonly resultsPath: string;
  /** The file with the brokers of its group. */
  readonly brokersPath: string;
  /** The file with the store of the worker's last broker. */
  readonly storePath: string;
  /** Where each attempt's output has its spill file. */
  readonly outputDirectory: string;
  /** Allows another process to use it. */
  release(): void;
}

/**
 * Creates the directory, or opens the one of an earlier process of this worker. With `shared: false` it is not locked:
 * it is temporary, or its worker is in the process of a broker.
 */
export function openWorkerDirectory(directory: string, { shared }: { readonly shared: boolean }): WorkerDirectory {
  const outputDirectory = join(directory, "out");
  try {
    openPrivateDirectory(resolve(directory));
    const lock = shared
      ? acquireLock(join(directory, "lock"), `the worker directory ${directory}`, "Give this one another --name")
      : undefined;
    try {
      fs.mkdirSync(outputDirectory, { recursive: true, mode: 0o700 });
      const secret = readOrCreateSecret(join(directory, "worker-secret"));
      return {
        id: workerIdOf(secret),
        secret,
        resultsPath: join(directory, "results"),
        brokersPath: join(directory, "brokers.json"),
        storePath: join(directory, "store.json"),
        outputDirectory,
        release: () => lock?.release(),
      };
    } catch (cause) {
      lock?.release();
      throw cause;
    }
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot use the worker directory ${directory}: ${text}`, { cause });
  }
}

function readOrCreateSecret(path: string): string {
  let text: string;
  try {
    text = fs.readFileSync(path, "utf8").trim();
  } catch (cause) {
    if (errnoOf(cause) !== "ENOENT") throw cause;
    const secret = newWorkerSecret();
    writeFileAtomically(path, `${secret}\n`);
    return secret;
  }
  if (text.length >= SHORTEST_SECRET) return text;
  throw new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path} holds no worker's secret; remove it to give the worker a new one`,
  );
}

const MAX_URLS = 1_000;
/** Former members of the group that are kept. */
const MAX_EARLIER = 32;

interface BrokerCredentials {
  readonly token: string;
  readonly caFingerprint?: string | undefined;
}

export class KnownBrokers {
  readonly #path: string;
  readonly #credentialHash: string;
  #explicit: readonly BrokerAddress[];
  #configured: readonly string[] = [];
  #group: readonly string[];
  /** Former members of the group: dead, drained, or just being restarted. */
  #earlier: readonly string[];

  /** `path` is the file. It is used only with the same token and CA; other brokers would refuse the worker. */
  constructor(path: string, explicit: readonly BrokerAddress[], { token, caFingerprint = "" }: BrokerCredentials) {
    this.#path = path;
    this.#credentialHash = createHash("sha256").update(`${token} ${caFingerprint}`).digest("hex").slice(0, 16);
    this.#explicit = explicit;
    ({ urls: this.#group, earlier: this.#earlier } = readGroup(path, this.#credentialHash));
  }

  /** At the start: those named explicitly come first. */
  get initialUrls(): readonly BrokerAddress[] {
    return [...new Set([...this.#explicit, ...this.#group, ...this.#earlier])];
  }

  /** URLs after the first join: from the pushed config, then the group. */
  get currentUrls(): readonly string[] {
    return [...new Set([...this.#configured, ...this.#group])];
  }

  /** To be tried if none of the current ones answers. */
  get fallbackUrls(): readonly BrokerAddress[] {
    return [...this.#explicit, ...this.#earlier];
  }

  isExplicit(url: BrokerAddress): boolean {
    return this.#explicit.includes(url);
  }

  setExplicit(urls: readonly string[]): void {
    this.#explicit = urls;
  }

  setConfigured(urls: readonly string[]): void {
    this.#configured = urls;
  }

  setGroup(urls: readonly string[]): void {
    const group = urls.slice(0, MAX_URLS);
    if (group.join() === this.#group.join()) return;
    const before = [...this.#group, ...this.#earlier].filter((url) => !group.includes(url));
    this.#earlier = [...new Set(before)].slice(0, MAX_EARLIER);
    this.#group = group;
    const file: BrokersFile = { credentialHash: this.#credentialHash, urls: group, earlier: this.#earlier };
    try {
      writeFileAtomically(this.#path, `${JSON.stringify(file)}\n`);
    } catch {
      // This process knows the group. The next one asks the broker that it is started with.
    }
  }
}

interface BrokersFile {
  /** A hash of the token and CA that these brokers accept. */
  readonly credentialHash: string;
  readonly urls: readonly string[];
  readonly earlier: readonly string[];
}

function readGroup(path: string, credentialHash: string): Omit<BrokersFile, "credentialHash"> {
  try {
    const file = JSON.parse(fs.readFileSync(path, "utf8")) as Partial<Record<keyof BrokersFile, unknown>>;
    if (file.credentialHash === credentialHash) return { urls: urlsIn(file.urls), earlier: urlsIn(file.earlier) };
  } catch {
    // It does not exist yet or is damaged: a broker will announce its group.
  }
  return { urls: [], earlier: [] };
}

function urlsIn(value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [];
  return value.filter((url): url is string => typeof url === "string" && URL.canParse(url)).slice(0, MAX_URLS);
}

/** The store of the worker's last broker. It is written to the worker's directory at the join. */
export class KnownStore {
  readonly #path: string;
  readonly #log: Log;
  remembered: RememberedStore | undefined;

  constructor(path: string, log: Log) {
    this.#path = path;
    this.#log = log;
    this.remembered = readRemembered(path);
  }

  /** The worker has tasks of this job. */
  addJob({ job, acceptedBy }: Pick<JobRecipe, "job" | "acceptedBy">): void {
    if (this.remembered !== undefined && job > this.remembered.job) {
      this.remembered = { ...this.remembered, job, acceptedBy };
    }
  }

  joined({ identity, epoch, older }: StoreInfo): void {
    const before = this.remembered;
    const same = before?.identity === identity;
    if (before !== undefined && !same) {
      this.#log.warn({}, "the broker has another store than before: tasks and results of the former one are dropped");
    }
    if (older) {
      const text = `the broker's store is older than what this worker remembers (job ${before?.job})`;
      this.#log.warn({}, `${text}: it was restored from a copy. Tasks and results that it does not know are dropped`);
    }
    if (same && before.epoch === epoch && !older) return;
    this.remembered = same && !older ? { ...before, epoch } : { identity, epoch, job: JobId(0) };
    try {
      // Not synced: it is only for messages. A file cut by a crash counts as none.
      fs.writeFileSync(this.#path, JSON.stringify(this.remembered), { mode: 0o600 });
    } catch (cause) {
      this.#log.warn({}, `the identity of the store is not kept: ${String(cause)}`);
    }
  }
}

/** A file that cannot be read says nothing. The next join writes it again. */
function readRemembered(path: string): RememberedStore | undefined {
  try {
    const { identity, epoch, job, acceptedBy } = JSON.parse(fs.readFileSync(path, "utf8")) as Partial<RememberedStore>;
    if (typeof identity !== "string" || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(job)) return undefined;
    return { identity, epoch: Number(epoch), job: JobId(Number(job)), acceptedBy };
  } catch {
    return undefined;
  }
}
