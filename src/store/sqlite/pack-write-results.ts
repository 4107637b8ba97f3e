/** The results of a batch, for the way back to the main thread: frequent ones as numbers, the others as they are. */
import { JobId } from "../../model/ids.js";
import { END_STATES } from "../../model/job.js";
import type { Progress } from "../../model/store.js";
import type { WriteResultRow } from "./thread-calls.js";

type Frequent = Extract<WriteResultRow, { op: "claim" | "settle" | "replace" | "submit" }>;

/** Claims with entries are not packed: most of their size is the entries. Few submissions replace a job. */
type PlainResult = Exclude<WriteResultRow, Frequent> | Extract<WriteResultRow, { op: "claim" | "submit" }>;

const isFrequent = (result: WriteResultRow): result is Frequent =>
  result.op === "settle" ||
  result.op === "replace" ||
  (result.op === "claim" && result.entries === undefined) ||
  (result.op === "submit" && result.replaced === undefined);

export interface PackedWriteResults {
  /** A code for each result, for some followed by a job's counters and end, or by its number and first lease. */
  readonly numbers: Float64Array;
  readonly plain: readonly PlainResult[];
}

const PLAIN = 0;
const LOST = 1;
const PROGRESS = 2;
const OPS: readonly Frequent["op"][] = ["claim", "settle", "replace", "submit"];
/** A code is the op's position + 1, times this, plus LOST and PROGRESS if they apply. */
const OP = 4;
const MAX_FIELDS = 5;

export function packWriteResults(results: readonly WriteResultRow[]): PackedWriteResults {
  const numbers = new Float64Array(results.length * MAX_FIELDS);
  const plain: PlainResult[] = [];
  let at = 0;
  for (const result of results) {
    if (!isFrequent(result)) {
      numbers[at++] = PLAIN;
      plain.push(result);
      continue;
    }
    if (result.op === "submit") {
      numbers[at++] = (OPS.indexOf(result.op) + 1) * OP;
      numbers[at++] = result.id;
      numbers[at++] = result.granted;
      continue;
    }
    const progress = result.op === "claim" ? undefined : result.progress;
    numbers[at++] =
      (OPS.indexOf(result.op) + 1) * OP + (result.lost ? LOST : 0) + (progress === undefined ? 0 : PROGRESS);
    if (progress === undefined) continue;
    numbers[at++] = progress.counters.succeeded;
    numbers[at++] = progress.counters.failed;
    numbers[at++] = progress.counters.cancelled;
    numbers[at++] = progress.ended === undefined ? -1 : END_STATES.indexOf(progress.ended);
  }
  return { numbers: numbers.slice(0, at), plain };
}

export function unpackWriteResults(packed: PackedWriteResults): WriteResultRow[] {
  const { numbers } = packed;
  const plain = packed.plain.values();
  const results: WriteResultRow[] = [];
  let at = 0;
  const next = (): number => numbers[at++] ?? Number.NaN;
  while (at < numbers.length) {
    const code = next();
    const op = OPS[Math.floor(code / OP) - 1];
    if (op === undefined) {
      const result = plain.next();
      if (!result.done) results.push(result.value);
      continue;
    }
    const lost = (code & LOST) !== 0;
    if (op === "submit") results.push({ op, id: JobId(next()), granted: next() });
    else if (op === "claim") results.push({ op, lost });
    else if ((code & PROGRESS) === 0) results.push({ op, lost });
    else results.push({ op, lost, progress: progressFrom(next(), next(), next(), next()) });
  }
  return results;
}

function progressFrom(succeeded: number, failed: number, cancelled: number, end: number): Progress {
  const counters = { succeeded, failed, cancelled };
  const ended = END_STATES[end];
  return ended === undefined ? { counters } : { counters, ended };
}
