/** Results as columns of parameters, and as rows that come back. */
import type { TaskEnd, TaskResult } from "../../model/outcome.js";
import { decodeSmallOutput, encodeSmallOutput } from "../small-output.js";
import { booleanArray, ConcatenatedBytes, numberArray, textArray } from "./arrays.js";
import type { Value } from "./connections.js";

/** How a task ended, by the number that the tables have for it. */
export const STATES: readonly TaskEnd[] = ["succeeded", "failed", "cancelled"];
export const stateNumber = (state: TaskEnd): number => STATES.indexOf(state);

export const RESULT_COLUMNS =
  "job, idx, attempt, state, worker, started, ended, output_bytes, code, signal, timed_out, error, cpu_ms, peak_memory, output, value";

/** `w` is the position of the write that brings it. The rare ones are left out where no result has any of them. */
const COLUMNS = ["w", "idx", "attempt", "state", "worker", "started", "ended", "output_bytes", "code"];
const RARE = "signal timed_out error cpu_ms peak_memory output_start output_length value_start value_length".split(" ");
const TYPES =
  "int int int smallint int float8 float8 bigint bigint text boolean text bigint bigint int int int int".split(" ");

export interface ResultColumns {
  readonly rare: boolean;
  readonly values: readonly Value[];
}

/** The rows as a source: `unnest($n::int[], …) AS r (w, idx, …)`, from parameter `first` on. */
export function resultRows(first: number, rare: boolean): string {
  const names = rare ? [...COLUMNS, ...RARE] : COLUMNS;
  const parameters = names.map((_, i) => `$${first + i}::${TYPES[i]}[]`);
  return `unnest(${parameters.join(", ")}) AS r (${names.join(", ")})`;
}

/** The parameter after the rows is all small output and all values, concatenated. */
export function rareColumns(first: number, rare: boolean): string {
  if (!rare) return new Array(RARE.length - 2).fill("NULL").join(", ");
  const bytes = `$${first + COLUMNS.length + RARE.length}::bytea`;
  return `r.signal, r.timed_out, r.error, r.cpu_ms, r.peak_memory, substring(${bytes} FROM r.output_start FOR r.output_length),
    substring(${bytes} FROM r.value_start FOR r.value_length)`;
}

/** The results of each write, one list behind the other. */
export function resultColumns(
  lists: readonly (readonly TaskResult[])[],
  workers: ReadonlyMap<string, number>,
): ResultColumns {
  const all = lists.flat();
  const from = lists.flatMap((results, at) => new Array<number>(results.length).fill(at + 1));
  const values = [
    numberArray(from),
    numberArray(all.map(({ index }) => index)),
    numberArray(all.map(({ attempt }) => attempt)),
    numberArray(all.map(({ state }) => stateNumber(state))),
    numberArray(all.map(({ worker }) => workers.get(worker) ?? 0)),
    numberArray(all.map(({ started }) => started)),
    numberArray(all.map(({ ended }) => ended)),
    numberArray(all.map(({ outputBytes }) => outputBytes)),
    numberArray(all.map(({ code }) => code ?? null)),
  ];
  const hasRare = ({ signal, timedOut, error, cpuMs, peakMemory, output, value }: TaskResult): boolean =>
    (signal ?? timedOut ?? error ?? cpuMs ?? peakMemory ?? output ?? value) !== undefined;
  if (!all.some(hasRare)) return { rare: false, values };
  const bytes = new ConcatenatedBytes();
  const places = all.map(({ output }) => (output === undefined ? undefined : bytes.add(encodeSmallOutput(output))));
  const valuePlaces = all.map(({ value }) => (value === undefined ? undefined : bytes.add(value)));
  const rare = [
    textArray(all.map(({ signal }) => signal ?? null)),
    booleanArray(all.map(({ timedOut }) => timedOut ?? null)),
    textArray(all.map(({ error }) => error ?? null)),
    numberArray(all.map(({ cpuMs }) => cpuMs ?? null)),
    numberArray(all.map(({ peakMemory }) => peakMemory ?? null)),
    numberArray(places.map((place) => place?.start ?? null)),
    numberArray(places.map((place) => place?.length ?? null)),
    numberArray(valuePlaces.map((place) => place?.start ?? null)),
    numberArray(valuePlaces.map((place) => place?.length ?? null)),
    bytes.bytes,
  ];
  return { rare: true, values: [...values, ...rare] };
}

export interface ResultRow {
  readonly index: number;
  readonly attempt: number;
  readonly state: number;
  readonly worker: string;
  readonly started: number;
  readonly ended: number;
  readonly outputBytes: number;
  readonly code: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean | null;
  readonly error: string | null;
  readonly cpuMs: number | null;
  readonly peakMemory: number | null;
  /** Only where it was asked for. */
  readonly output?: Uint8Array | null;
  readonly valueBytes: number | null;
  readonly value?: Uint8Array | null;
}

export const RESULT_FIELDS = `
r.idx AS "index", r.attempt, r.state, coalesce(w.name, '') AS worker, r.started, r.ended, r.output_bytes AS "outputBytes", r.code, r.signal,
r.timed_out AS "timedOut", r.error, r.cpu_ms AS "cpuMs", r.peak_memory AS "peakMemory", octet_length(r.value) AS "valueBytes"`;

export function resultFrom(found: ResultRow): TaskResult {
  const { code, signal, timedOut, error, cpuMs, peakMemory, output, valueBytes, value, state, ...row } = found;
  return {
    ...row,
    state: STATES[state] ?? "failed",
    ...(code === null ? {} : { code }),
    ...(signal === null ? {} : { signal }),
    ...(timedOut === null ? {} : { timedOut }),
    ...(error === null ? {} : { error }),
    ...(cpuMs === null ? {} : { cpuMs }),
    ...(peakMemory === null ? {} : { peakMemory }),
    ...(output == null ? {} : { output: decodeSmallOutput(new Uint8Array(output)) }),
    ...(valueBytes === null ? {} : { valueBytes }),
    ...(value == null ? {} : { value: new Uint8Array(value) }),
  };
}
