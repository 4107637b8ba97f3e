/**
 * `laboro/task`: task definitions, which clients and workers share. Loads no client and no worker.
 *
 * @module laboro/task
 */
export {
  bytes,
  defineTask,
  type HandlerContext,
  json,
  NoRetry,
  RetryAfter,
  type StandardSchema,
  type TaskDefinition,
  type TaskFunction,
  type TaskHandler,
  type TaskOptions,
  type TaskOutcome,
} from "../model/task-definition.js";
