export { onCommitted } from "./commit-results.js";
export { onCancel, onRemoteCancel as onCancelHeard } from "./cancel.js";
export { checkInvariants as check } from "./invariants.js";
export { type Call, Decisions, type Send, type AttemptRange as TasksOf } from "./decisions.js";
export { explain } from "./explain.js";
export { firstLease } from "./leasing.js";
export {
  onGranted,
  onHold,
  onRemoteHold as onHoldHeard,
  onJobAdded,
  onJobRefused,
  onMayLease as onMore,
  onOpened,
  onProgress,
  signatureOfJob,
} from "./jobs.js";
export { onRemoteIdle as onIdleElsewhere, releaseAllWaiting as relinquishAll } from "./job-queue.js";
export { onReclaim } from "./reclaim.js";
export type { ReportedTasks as Holding, Reconciled } from "./reconcile.js";
export { isServiceOffered as isServed, onRequestCancelled as onForget, onReply, onRequest, type Request } from "./requests.js";
export { type Done, onDone, onRetracted, onStarted } from "./results.js";
export { DEFAULT_SETTINGS, type Settings } from "./settings.js";
export { standingRecordOf as figuresOf, onForgive, STANDING_BUCKET as STANDING_AREA } from "./standing.js";
export { createState, type StandingRecord as Figures, newTaskRangeId as newParcelId, type State, type WorkerProfile, type WorkerState } from "./state.js";
export { nextTimerAt as nextAlarm, onHalt, onResume, onTimer as onTime } from "./timers.js";
export {
  onDrain,
  onOrphans,
  onProfile,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
} from "./workers.js";
