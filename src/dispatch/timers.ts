/** Timers: ends of backoff, deadlines and ends of grace. The caller sets one system timer, for the first of them. */
import type { Decisions } from "./decisions.js";
import { endBackoff, leaseMore } from "./job-queue.js";
import { onMayLease } from "./jobs.js";
import { onLimitTimer } from "./limits.js";
import { placeWork } from "./placement.js";
import { expireRequests } from "./requests.js";
import type { State } from "./state.js";
import { onGraceExpired } from "./workers.js";

export function nextTimerAt(state: State): number | undefined {
  const at = Math.min(state.timers.peek()?.at ?? Number.POSITIVE_INFINITY, state.requestsDueAt);
  return at === Number.POSITIVE_INFINITY ? undefined : at;
}

export function onTimer(state: State, out: Decisions, now: number): void {
  if (state.requestsDueAt <= now) expireRequests(state, out, now);
  let due = false;
  for (let timer = state.timers.peek(); timer !== undefined && timer.at <= now; timer = state.timers.peek()) {
    state.timers.remove(timer);
    if (timer.kind === "grace") {
      delete timer.worker.grace;
      onGraceExpired(state, out, timer.worker, now);
    } else if (timer.kind === "limit") {
      onLimitTimer(state, timer.limit, now);
      due = true;
    } else if (timer.kind === "lease") {
      onMayLease(state, out, timer.job);
    } else {
      endBackoff(state, timer.job, timer.waiting);
      due = true;
    }
  }
  if (due) placeWork(state, out, now);
}

/** Nothing more is assigned, for the given reason. Requests continue. */
export function onHalt(state: State, reason: string): void {
  state.halted = reason;
}

export function onResume(state: State, out: Decisions, now: number): void {
  state.halted = undefined;
  for (const job of state.jobs.values()) leaseMore(state, out, job);
  placeWork(state, out, now);
}
