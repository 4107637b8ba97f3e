/** Operations of the broker by name, with the types that the broker itself gives them. */
import type { OperationInput, OperationName, OperationOutput } from "../broker/operations/index.js";
import type { Client } from "../client/client.js";

export type { OperationOutput } from "../broker/operations/index.js";
export type JobView = OperationOutput<"job">;
export type WorkerView = OperationOutput<"workers">["workers"][number];
export type TaskView = OperationOutput<"tasks">["tasks"][number];

export const ask = async <Name extends OperationName>(
  client: Client,
  operation: Name,
  input: OperationInput<Name>,
): Promise<OperationOutput<Name>> => (await client.ask(operation, input)) as OperationOutput<Name>;
