/**
 * A worker's data directory: its identity in `worker-secret`, and undelivered results and output in `results` and
 * `out/`. One process uses it at a time.
 */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import { acquireLock } from "../../base/files/lock.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import type { WorkerId } from "../../model/ids.js";
import { SHORTEST_SECRET } from "../../protocols/laboro/codec-fields.js";
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
    `${path} holds no worker's secret; remove it to let the worker take a new one`,
  );
}
