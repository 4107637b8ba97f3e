/** What the operations of one batch share while it is on its way. */
import type { JobId } from "../../model/ids.js";
import type { Answer } from "../../model/store.js";
import type { Session } from "./connections.js";
import type { EntryCache } from "./entry-cache.js";
import type { Op } from "./stages.js";

export interface Batch {
  readonly session: Session;
  readonly now: number;
  /** By the place of the write. */
  readonly answers: (Answer | undefined)[];
  /** The numbers of the workers that results name. */
  readonly workers: ReadonlyMap<string, number>;
  /** Those given to submissions. */
  readonly numbers: ReadonlyMap<Op<"submit">, JobId>;
  readonly entries: EntryCache;
}

/** Writes that were taken together did not go as they would have one by one: all is undone, and done one by one. */
export class MustGoApart extends Error {}
