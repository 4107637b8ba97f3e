export { onCommitted } from "./commit-results.js";
export { onCancel, onRemoteCancel } from "./cancel.js";
export { checkInvariants } from "./invariants.js";
export { type Call, Decisions, type Send, type AttemptRange } from "./decisions.js";
export { explain } from "./explain.js";
export { firstLease } from "./leasing.js";
export {
  onGranted,
  onHold,
  onRemoteHold,
  onJobAdded,
  onJobRefused,
  onMayLease,
  onOpened,
  onProgress,
  signatureOfJob,
} from "./jobs.js";
export { onRemoteIdle, releaseAllWaiting } from "./job-queue.js";
export { onReclaim } from "./reclaim.js";
export type { ReportedTasks, Reconciled } from "./reconcile.js";
export { isServiceOffered, onRequestCancelled, onReply, onRequest, type Request } from "./requests.js";
export { type Done, onDone, onRetracted, onStarted } from "./results.js";
export { DEFAULT_SETTINGS, type Settings } from "./settings.js";
export { standingRecordOf, onForgive, STANDING_BUCKET } from "./standing.js";
export { createState, type StandingRecord, newTaskRangeId, type State, type WorkerProfile, type WorkerState } from "./state.js";
export { nextTimerAt, onHalt, onResume, onTimer } from "./timers.js";
export {
  onDrain,
  onOrphans,
  onProfile,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
} from "./workers.js";
