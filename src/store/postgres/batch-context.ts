/** What the operations of one batch share while it is on its way. */
import type { JobId } from "../../model/ids.js";
import type { WriteResult } from "../../model/store.js";
import type { Session } from "./connections.js";
import type { EntryCache } from "./entry-cache.js";
import type { WriteOf } from "./stages.js";

export interface BatchContext {
  readonly session: Session;
  readonly now: number;
  /** By the place of the write. */
  readonly writeResults: (WriteResult | undefined)[];
  /** The numbers of the workers that results name. */
  readonly workerNumbers: ReadonlyMap<string, number>;
  /** Those given to submissions. */
  readonly jobNumbers: ReadonlyMap<WriteOf<"submit">, JobId>;
  readonly entries: EntryCache;
}

/** Writes that were taken together did not go as they would have one by one: all is undone, and done one by one. */
export class MustRunSeparately extends Error {}
