/** Results of operations, by the names that the verbs use. */
import type { OperationOutput } from "../../broker/operations/index.js";

export type { OperationOutput } from "../../broker/operations/index.js";
export type JobView = OperationOutput<"job">;
export type WorkerView = OperationOutput<"workers">["workers"][number];
export type TaskView = OperationOutput<"tasks">["tasks"][number];
