/**
 * How workers have behaved, by name. Results are always counted, but have consequences only with the setting
 * `standing`:
 *
 *   good        takes work. From the 10th result on, more than 2 failures in the last 10 suspend it
 *   suspended   while idle it gets a single task as a probe; two successes in a row make it good again and clear the
 *               last 10
 *   banned      from the 10th result on, fewer than 60 % successes overall: it gets nothing until it is forgiven
 *
 * Cancelled tasks and lost workers do not count as results.
 */
import type { Decisions } from "./decisions.js";
import { fillWorker, placeWork } from "./placement.js";
import { retractClaims } from "./prefetch.js";
import { unreserve } from "./reservation.js";
import { updateSignatures } from "./signature.js";
import type { Standing, StandingRecord, State, WorkerState } from "./state.js";

const MIN_RESULTS = 10;
const RECENT = 10;
const MAX_RECENT_FAILURES = 2;
const MIN_SUCCESS_RATE = 0.6;
const PROBES_TO_PASS = 2;

/** The bucket of the store in which standings are kept. */
export const STANDING_BUCKET = "standing";

const NO_RESULTS: StandingRecord = { results: 0, succeeded: 0, recent: "", probes: 0, standing: "good" };

export const standingRecordOf = (state: State, name: string): StandingRecord => state.standings.get(name) ?? NO_RESULTS;

/** The record with the standing that follows from it under the current settings. */
export function standingOf(state: State, name: string): StandingRecord {
  const record = standingRecordOf(state, name);
  return state.settings.standing ? record : { ...record, standing: "good" };
}

/** The record after one more result: `+` in `recent` is a success, `-` a failure, the latest last. */
export function afterResult(record: StandingRecord, good: boolean): StandingRecord {
  const results = record.results + 1;
  const succeeded = record.succeeded + (good ? 1 : 0);
  const recent = `${record.recent}${good ? "+" : "-"}`.slice(-RECENT);
  const counted = { results, succeeded, recent, probes: 0 };
  if (record.standing === "banned") return { ...counted, standing: "banned" };
  if (results >= MIN_RESULTS && succeeded / results < MIN_SUCCESS_RATE) return { ...counted, standing: "banned" };
  if (record.standing === "suspended") {
    const probes = good ? record.probes + 1 : 0;
    if (probes < PROBES_TO_PASS) return { ...counted, probes, standing: "suspended" };
    return { ...counted, recent: "", standing: "good" };
  }
  const failures = recent.split("-").length - 1;
  const suspended = results >= MIN_RESULTS && failures > MAX_RECENT_FAILURES;
  return { ...counted, standing: suspended ? "suspended" : record.standing };
}

/** A worker has reported these ends. */
export function countResults(state: State, out: Decisions, worker: WorkerState, successes: readonly boolean[]): void {
  if (successes.length === 0) return;
  const { name } = worker.profile;
  const before = standingRecordOf(state, name);
  const record = state.settings.standing ? successes.reduce(afterResult, before) : countOnly(before, successes);
  saveRecord(state, out, name, record);
  if (record.standing !== before.standing) setStanding(state, out, name, record.standing);
}

/** Counts a whole report at once: without the setting `standing` it should cost almost nothing. */
function countOnly(record: StandingRecord, successes: readonly boolean[]): StandingRecord {
  let succeeded = record.succeeded;
  for (const good of successes) if (good) succeeded++;
  const latest = successes.slice(-RECENT).map((good) => (good ? "+" : "-"));
  const recent = `${record.recent}${latest.join("")}`.slice(-RECENT);
  return { ...record, results: record.results + successes.length, succeeded, recent };
}

function saveRecord(state: State, out: Decisions, name: string, record: StandingRecord): void {
  state.standings.set(name, record);
  if (state.settings.standing) {
    out.writes.push({ op: "put", bucket: STANDING_BUCKET, key: name, value: JSON.stringify(record) });
  }
}

function setStanding(state: State, out: Decisions, name: string, standing: Standing): void {
  for (const worker of state.workers.values()) {
    if (worker.profile.name !== name) continue;
    worker.standing = standing;
    if (!worker.connected) continue;
    if (standing !== "good") {
      retractClaims(out, worker, worker.prefetchedClaims);
      if (worker.reservedFor !== undefined) unreserve(state, worker.reservedFor.signature);
    }
    updateSignatures(state, worker);
  }
}

/** Clears the record of the workers with this name. False if there was none. */
export function onForgive(state: State, out: Decisions, name: string, now: number): boolean {
  const known = state.standings.delete(name);
  out.writes.push({ op: "put", bucket: STANDING_BUCKET, key: name, value: null });
  setStanding(state, out, name, "good");
  for (const worker of state.workers.values()) {
    if (worker.profile.name === name && worker.connected) fillWorker(state, out, worker, now);
  }
  placeWork(state, out, now);
  return known;
}
