/** The answers to a batch on their way back: those that come by the thousand as numbers, the others as they are. */
import type { JobEnd } from "../../model/job.js";
import type { Progress } from "../../model/store.js";
import type { WriteResultRow } from "./messages.js";

type Frequent = Extract<WriteResultRow, { op: "claim" | "settle" | "replace" }>;

/** A claim with entries is no more frequent than they are large. */
type Plain = Exclude<WriteResultRow, Frequent> | Extract<WriteResultRow, { op: "claim" }>;

const isFrequent = (answer: WriteResultRow): answer is Frequent =>
  answer.op === "settle" || answer.op === "replace" || (answer.op === "claim" && answer.entries === undefined);

export interface PackedWriteResults {
  /** A code an answer, for some followed by a job's counters and end. */
  readonly numbers: Float64Array;
  readonly plain: readonly Plain[];
}

const PLAIN = 0;
const LOST = 1;
const PROGRESS = 2;
const OPS: readonly Frequent["op"][] = ["claim", "settle", "replace"];
const ENDS: readonly JobEnd[] = ["succeeded", "failed", "cancelled"];
/** A code is the op's position + 1, times this, plus LOST and PROGRESS where they apply. */
const OP = 4;
const MAX_FIELDS = 5;

export function packWriteResults(answers: readonly WriteResultRow[]): PackedWriteResults {
  const numbers = new Float64Array(answers.length * MAX_FIELDS);
  const plain: Plain[] = [];
  let at = 0;
  for (const answer of answers) {
    if (!isFrequent(answer)) {
      numbers[at++] = PLAIN;
      plain.push(answer);
      continue;
    }
    const progress = answer.op === "claim" ? undefined : answer.progress;
    numbers[at++] =
      (OPS.indexOf(answer.op) + 1) * OP + (answer.lost ? LOST : 0) + (progress === undefined ? 0 : PROGRESS);
    if (progress === undefined) continue;
    numbers[at++] = progress.counters.succeeded;
    numbers[at++] = progress.counters.failed;
    numbers[at++] = progress.counters.cancelled;
    numbers[at++] = progress.ended === undefined ? -1 : ENDS.indexOf(progress.ended);
  }
  return { numbers: numbers.slice(0, at), plain };
}

export function unpackWriteResults(packed: PackedWriteResults): WriteResultRow[] {
  const { numbers } = packed;
  const plain = packed.plain.values();
  const answers: WriteResultRow[] = [];
  let at = 0;
  const next = (): number => numbers[at++] ?? Number.NaN;
  while (at < numbers.length) {
    const code = next();
    const op = OPS[Math.floor(code / OP) - 1];
    if (op === undefined) {
      const answer = plain.next();
      if (!answer.done) answers.push(answer.value);
      continue;
    }
    const lost = (code & LOST) !== 0;
    if (op === "claim") answers.push({ op, lost });
    else if ((code & PROGRESS) === 0) answers.push({ op, lost });
    else answers.push({ op, lost, progress: progressFrom(next(), next(), next(), next()) });
  }
  return answers;
}

function progressFrom(succeeded: number, failed: number, cancelled: number, end: number): Progress {
  const counters = { succeeded, failed, cancelled };
  const ended = ENDS[end];
  return ended === undefined ? { counters } : { counters, ended };
}
