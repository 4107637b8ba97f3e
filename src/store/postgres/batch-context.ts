/** What the operations of one batch share. */
import type { JobId } from "../../model/ids.js";
import type { WriteResult } from "../../model/store.js";
import type { Session } from "./connections.js";
import type { EntryCache } from "./entry-cache.js";
import type { WriteOf } from "./stages.js";

export interface BatchContext {
  readonly session: Session;
  readonly now: number;
  /** By the position of the write. */
  readonly writeResults: (WriteResult | undefined)[];
  /** The numbers of the workers that results name. */
  readonly workerNumbers: ReadonlyMap<string, number>;
  /** The job numbers given to submissions. */
  readonly jobNumbers: ReadonlyMap<WriteOf<"submit">, JobId>;
  readonly entries: EntryCache;
}

/** Writes combined into one statement gave another result than they would one by one: the batch is rolled back and done one by one. */
export class MustRunSeparately extends Error {}
