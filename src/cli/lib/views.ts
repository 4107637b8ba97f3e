/** Results of operations, by the names that the verbs use, and page by page. */
import type { OperationOutput } from "../../broker/operations/index.js";

export type { OperationOutput } from "../../broker/operations/index.js";
export type JobView = OperationOutput<"job">;
export type WorkerView = OperationOutput<"workers">["workers"][number];
export type TaskView = OperationOutput<"tasks">["tasks"][number];

/** Reads page after page. Stops at the last one, or where the caller stops. */
export async function* pages<Page extends { readonly next?: number | undefined }>(
  read: (from: number) => Promise<Page>,
  start = 0,
): AsyncGenerator<Page> {
  for (let from: number | undefined = start; from !== undefined; ) {
    const page: Page = await read(from);
    yield page;
    from = page.next;
  }
}
