/** The SDK: embed a broker or a worker, or be a client of one that runs. */

export { type ErrorCode, LaboroError } from "../base/errors.js";
export type { Log } from "../base/log.js";
export type { JobEnd } from "../model/job.js";
export type { Submission } from "../model/job-input.js";
export type { TaskResult } from "../model/outcome.js";
export type { Recipe } from "../model/recipe.js";
export { type Broker, type BrokerOptions, startBroker } from "../server.js";
export {
  type CallContext,
  type Handler,
  type StopOptions,
  startWorker,
  type Worker,
  type WorkerOptions,
} from "../worker/index.js";
export type { ServiceMode, ServiceProgram } from "../worker/programs/index.js";
export {
  Client,
  type ConnectOptions,
  connect,
  JobHandle,
  type JobInfo,
  type RequestOptions,
  type WorkerInfo,
} from "./client.js";
