/**
 * The data directory of a broker of a group: the broker's identity, tokens, certificates, and a lock. The lock proves that the former process
 * of this broker has ended, so its tasks can be taken over at once, without waiting for the end of its lease.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openDataDirectory } from "../../store/sqlite/data-directory.js";

const FILE = "group.json";

interface StoredIdentity {
  readonly identity: string;
  /** Its last epoch. */
  readonly epoch?: number;
}

export interface GroupDirectory {
  readonly identity: string;
  readonly formerEpoch: number | undefined;
  /** Stores the epoch of this process. */
  saveEpoch(epoch: number): void;
  release(): void;
}

export function openGroupDirectory(dir: string, allowNetworkFilesystem: boolean): GroupDirectory {
  const lock = openDataDirectory({ dir, allowNetworkFilesystem });
  try {
    const path = join(dir, FILE);
    let { identity, epoch } = readIdentity(path) ?? { identity: randomBytes(6).toString("hex") };
    const write = (): void => writeFileAtomically(path, `${JSON.stringify({ identity, epoch })}\n`);
    if (epoch === undefined) write();
    return {
      identity,
      get formerEpoch() {
        return epoch;
      },
      saveEpoch: (now) => {
        epoch = now;
        write();
      },
      release: () => lock.release(),
    };
  } catch (cause) {
    lock.release();
    throw cause;
  }
}

function readIdentity(path: string): StoredIdentity | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw cause;
  }
  try {
    const { identity, epoch } = JSON.parse(text) as Partial<StoredIdentity>;
    if (typeof identity === "string" && identity !== "") {
      return { identity, ...(typeof epoch === "number" ? { epoch } : {}) };
    }
  } catch {
    // Reported below.
  }
  throw new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path} has no identity; remove the file to give this broker a new one`,
  );
}
