/**
 * A worker's identity: a secret that it keeps and shows at JOIN. Its id is the hash of the secret. So the broker stores
 * nothing to recognise a worker, any broker of a group can do it, and the id alone does not let others act as the
 * worker.
 */
import { createHash, randomBytes } from "node:crypto";
import { WorkerId } from "../../model/ids.js";

export const newWorkerSecret = (): string => randomBytes(32).toString("base64url");

/** 32 hexadecimal digits. Ids of the other protocols begin with a name and a colon. */
export const workerIdOf = (secret: string): WorkerId =>
  WorkerId(createHash("sha256").update(secret).digest("hex").slice(0, 32));
