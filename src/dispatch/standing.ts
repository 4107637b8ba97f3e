/**
 * How workers have behaved, by name. What they did is counted always; only with the setting `standing` does anything follow from it:
 *
 *   good        takes work. From the 10th result on, more than 2 failures in the last 10 suspend it
 *   suspended   with nothing running it gets a single task as a probe; two successes in a row make it good again and clear the
 *               last 10
 *   banned      from the 10th result on, fewer than 60 % successes overall: it gets nothing more, until somebody forgives it
 *
 * Cancelled tasks and lost workers are no results of a worker's.
 */
import type { Decisions } from "./decisions.js";
import { fillWorker, placeWork } from "./place.js";
import { unreserve } from "./reservation.js";
import { reenlist } from "./signature.js";
import type { Figures, Standing, State, WorkerState } from "./state.js";
import { retractClaims } from "./stock.js";

const FIRST_JUDGED = 10;
const RECENT = 10;
const MOST_RECENT_FAILURES = 2;
const LEAST_SUCCESS = 0.6;
const PROBES_TO_PASS = 2;

/** Where standings are kept in the store. */
export const STANDING_AREA = "standing";

const CLEAN: Figures = { results: 0, succeeded: 0, recent: "", probes: 0, standing: "good" };

export const figuresOf = (state: State, name: string): Figures => state.standings.get(name) ?? CLEAN;

/** One more result of a worker that stands so: `+` in `recent` is a success, `-` a failure, the latest last. */
export function afterResult(figures: Figures, good: boolean): Figures {
  const results = figures.results + 1;
  const succeeded = figures.succeeded + (good ? 1 : 0);
  const recent = `${figures.recent}${good ? "+" : "-"}`.slice(-RECENT);
  const counted = { results, succeeded, recent, probes: 0 };
  if (figures.standing === "banned") return { ...counted, standing: "banned" };
  if (results >= FIRST_JUDGED && succeeded / results < LEAST_SUCCESS) return { ...counted, standing: "banned" };
  if (figures.standing === "suspended") {
    const probes = good ? figures.probes + 1 : 0;
    if (probes < PROBES_TO_PASS) return { ...counted, probes, standing: "suspended" };
    return { ...counted, recent: "", standing: "good" };
  }
  const failures = recent.split("-").length - 1;
  const suspended = results >= FIRST_JUDGED && failures > MOST_RECENT_FAILURES;
  return { ...counted, standing: suspended ? "suspended" : figures.standing };
}

/** A worker has reported these ends. */
export function countResults(state: State, out: Decisions, worker: WorkerState, ends: readonly boolean[]): void {
  if (ends.length === 0) return;
  const { name } = worker.profile;
  const before = figuresOf(state, name);
  const figures = state.settings.standing ? ends.reduce(afterResult, before) : merelyCounted(before, ends);
  keepFigures(state, out, name, figures);
  if (figures.standing !== before.standing) setStanding(state, out, name, figures.standing);
}

/** All of a report at once: where nothing follows from it, it should cost next to nothing. */
function merelyCounted(figures: Figures, ends: readonly boolean[]): Figures {
  let succeeded = figures.succeeded;
  for (const good of ends) if (good) succeeded++;
  const latest = ends.slice(-RECENT).map((good) => (good ? "+" : "-"));
  const recent = `${figures.recent}${latest.join("")}`.slice(-RECENT);
  return { ...figures, results: figures.results + ends.length, succeeded, recent };
}

function keepFigures(state: State, out: Decisions, name: string, figures: Figures): void {
  state.standings.set(name, figures);
  if (state.settings.standing) {
    out.writes.push({ op: "keep", area: STANDING_AREA, key: name, value: JSON.stringify(figures) });
  }
}

function setStanding(state: State, out: Decisions, name: string, standing: Standing): void {
  for (const worker of state.workers.values()) {
    if (worker.profile.name !== name) continue;
    worker.standing = standing;
    if (!worker.connected) continue;
    if (standing !== "good") {
      retractClaims(out, worker, worker.stocked);
      if (worker.reservedFor !== undefined) unreserve(state, worker.reservedFor);
    }
    reenlist(state, worker);
  }
}

/** Nothing of what these workers did counts any more. False where nothing was known of that name. */
export function onForgive(state: State, out: Decisions, name: string, now: number): boolean {
  const known = state.standings.delete(name);
  out.writes.push({ op: "keep", area: STANDING_AREA, key: name, value: null });
  setStanding(state, out, name, "good");
  for (const worker of state.workers.values()) {
    if (worker.profile.name === name && worker.connected) fillWorker(state, out, worker, now);
  }
  placeWork(state, out, now);
  return known;
}
