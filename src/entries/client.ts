/**
 * `laboro`: a client of a broker. Loads no broker, no worker and no store.
 *
 * @module laboro
 */
export { type ErrorCode, LaboroError } from "../base/errors.js";
export {
  type AddOptions,
  type After,
  type BrokerEvent,
  type CallOptions,
  Client,
  type ConnectOptions,
  connect,
  type EventOptions,
  JobHandle,
  type JobInfo,
  type RequestOptions,
  type TaskResult,
  type WorkerInfo,
} from "../client/client.js";
export type { FollowOptions } from "../client/follow.js";
export {
  type AllocatorInfo,
  Allocators,
  type ScheduledTaskOptions,
  type ScheduleInfo,
  Schedules,
  type ScheduleWhen,
} from "../client/schedules.js";
export { addInTransaction, type Query, type TransactionOptions } from "../client/transaction.js";
export type { JobEnd } from "../model/job.js";
export type { Submission } from "../model/job-input.js";
export type { EndedTask, JobProgress } from "../model/outcome.js";
export type { Recipe } from "../model/recipe.js";
export type { ScheduleEdit, ScheduleInput } from "../model/schedule.js";
// The names of `laboro/task`, without a module more to load.
export {
  bytes,
  defineTask,
  type HandlerContext,
  json,
  NoRetry,
  RetryAfter,
  type StandardSchema,
  type TaskDefinition,
  TaskFailed,
  type TaskFunction,
  type TaskHandler,
  type TaskOptions,
  type TaskOutcome,
} from "../model/task-definition.js";
