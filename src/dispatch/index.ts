export { onCommitted } from "./answers.js";
export { onCancel, onCancelHeard } from "./cancel.js";
export { check } from "./check.js";
export { type Call, Decisions, type Send, type TasksOf } from "./decisions.js";
export { explain } from "./explain.js";
export { firstLease } from "./forage.js";
export {
  onGranted,
  onHold,
  onHoldHeard,
  onJobAdded,
  onJobRefused,
  onMore,
  onOpened,
  onProgress,
  signatureOfJob,
} from "./jobs.js";
export { onIdleElsewhere, relinquishAll } from "./queue.js";
export { onReclaim } from "./reclaim.js";
export type { Holding, Reconciled } from "./reconcile.js";
export { isServed, onForget, onReply, onRequest, type Request } from "./requests.js";
export { type Done, onDone, onRetracted, onStarted } from "./results.js";
export { DEFAULT_SETTINGS, type Settings } from "./settings.js";
export { figuresOf, onForgive, STANDING_AREA } from "./standing.js";
export { createState, type Figures, newParcelId, type State, type WorkerProfile, type WorkerState } from "./state.js";
export { nextAlarm, onHalt, onResume, onTime } from "./time.js";
export {
  onDrain,
  onOrphans,
  onProfile,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
} from "./workers.js";
