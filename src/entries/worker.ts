/**
 * `laboro/worker`: a worker inside another program.
 *
 * @module laboro/worker
 */
export { type ErrorCode, LaboroError } from "../base/errors.js";
export type { Log } from "../base/log.js";
export {
  type HandleOptions,
  type Handler,
  type ServiceMode,
  type ServiceProgram,
  type StopOptions,
  type StopReason,
  startWorker,
  type TaskEndInfo,
  type ThreadOptions,
  type Worker,
  type WorkerOptions,
} from "../worker/index.js";
export * from "./task.js";
