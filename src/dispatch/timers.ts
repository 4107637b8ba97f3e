/** Timers: ends of backoff, deadlines and ends of grace. The caller sets one system timer, for the first of them. */
import type { Decisions } from "./decisions.js";
import { endBackoff, leaseMore } from "./job-queue.js";
import { placeWork } from "./placement.js";
import { expire } from "./requests.js";
import type { State } from "./state.js";
import { onGraceExpired } from "./workers.js";

export const nextTimerAt = (state: State): number | undefined => state.timers.peek()?.at;

export function onTimer(state: State, out: Decisions, now: number): void {
  let due = false;
  for (let timer = state.timers.peek(); timer !== undefined && timer.at <= now; timer = state.timers.peek()) {
    state.timers.remove(timer);
    if (timer.kind === "deadline") {
      expire(state, out, timer.request);
    } else if (timer.kind === "grace") {
      delete timer.worker.grace;
      onGraceExpired(state, out, timer.worker, now);
    } else {
      endBackoff(state, timer.job, timer.waiting);
      due = true;
    }
  }
  if (due) placeWork(state, out, now);
}

/** Nothing more is handed out, for the reason given. Requests go on. */
export function onHalt(state: State, reason: string): void {
  state.halted = reason;
}

export function onResume(state: State, out: Decisions, now: number): void {
  state.halted = undefined;
  for (const job of state.jobs.values()) leaseMore(state, out, job);
  placeWork(state, out, now);
}
