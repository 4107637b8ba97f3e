/** What falls due by the clock: ends of backoff, of deadlines and of grace. The caller sets one alarm, for the first of them. */
import type { Decisions } from "./decisions.js";
import { placeWork } from "./place.js";
import { fallDue, refill } from "./queue.js";
import { expire } from "./requests.js";
import type { State } from "./state.js";
import { giveUp } from "./workers.js";

export const nextAlarm = (state: State): number | undefined => state.timers.peek()?.at;

export function onTime(state: State, out: Decisions, now: number): void {
  let due = false;
  for (let timer = state.timers.peek(); timer !== undefined && timer.at <= now; timer = state.timers.peek()) {
    state.timers.remove(timer);
    if (timer.kind === "deadline") {
      expire(state, out, timer.request);
    } else if (timer.kind === "grace") {
      delete timer.worker.grace;
      giveUp(state, out, timer.worker, now);
    } else {
      fallDue(state, timer.job, timer.waiting);
      due = true;
    }
  }
  if (due) placeWork(state, out, now);
}

/** Nothing more is handed out: the disk is full, or the broker stops. Requests go on. */
export function onHalt(state: State): void {
  state.halted = true;
}

export function onResume(state: State, out: Decisions, now: number): void {
  state.halted = false;
  for (const job of state.jobs.values()) refill(state, out, job);
  placeWork(state, out, now);
}
