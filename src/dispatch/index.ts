export { onCancel, onRemoteCancel } from "./cancel.js";
export { onCommitted } from "./commit-results.js";
export { type AssignedRange, type AttemptRange, type Call, Decisions, type Send } from "./decisions.js";
export { onEachEnded } from "./each.js";
export { explain, whyDelayed } from "./explain.js";
export { onRemoteIdle, releaseAllWaiting } from "./job-queue.js";
export {
  onHold,
  onJobAdded,
  onJobEdited,
  onJobRefused,
  onJobsDue,
  onMayLease,
  onOpened,
  onPoolPaused,
  onProgress,
  signatureOfJob,
  waitsInDispatch,
} from "./jobs.js";
export { firstLease } from "./leasing.js";
export { loadLimits, onLimitRule, onLimitsFreed } from "./limits.js";
export { onReclaim, type Reconciled, type ReportedTasks } from "./reconcile.js";
export { isServiceOffered, onReply, onRequest, onRequestCancelled } from "./requests.js";
export { type Done, isUrgent, onDone, onRetracted, onStarted } from "./results.js";
export { DEFAULT_SETTINGS, type Settings } from "./settings.js";
export { onForgive, STANDING_BUCKET, standingOf, standingRecordOf } from "./standing.js";
export {
  createState,
  newTaskRangeId,
  type StandingRecord,
  type State,
  type WorkerProfile,
  type WorkerState,
} from "./state.js";
export { nextTimerAt, onHalt, onResume, onTimer } from "./timers.js";
export {
  loadRecords,
  onDrain,
  onOrphans,
  onProfile,
  onSlots,
  onUndrain,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
  WORKER_BUCKET,
} from "./workers.js";
