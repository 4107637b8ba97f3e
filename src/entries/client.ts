/** `laboro`: a client of a broker that runs elsewhere. It loads neither broker, nor worker, nor store. */
export { type ErrorCode, LaboroError } from "../base/errors.js";
export {
  type CallOptions,
  Client,
  type ConnectOptions,
  connect,
  JobHandle,
  type JobInfo,
  type RequestOptions,
  type TaskResult,
  type WorkerInfo,
} from "../client/client.js";
export type { FollowOptions } from "../client/follow.js";
export type { JobEnd } from "../model/job.js";
export type { Submission } from "../model/job-input.js";
export type { EndedTask, JobProgress } from "../model/progress.js";
export type { Recipe } from "../model/recipe.js";
