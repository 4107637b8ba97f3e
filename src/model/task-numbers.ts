/**
 * The number of a task is what users, `{#}`, `LABORO_TASK`, `JOB.TASK` and fuq use: in an array its number in the
 * array, otherwise its place from 1. Inside laboro and in the API a task also has an index, its place from 0. The
 * numbers of a job are strides in order of index. Without strides they are 1 to count.
 */
import type { Range, Ranges } from "./ranges.js";

/** The numbers first, first + step, … up to last. */
export interface Stride {
  readonly first: number;
  readonly last: number;
  readonly step: number;
}

export type Strides = readonly Stride[];

/** What determines a job's numbers. `numbers` is set if they are neither those of an array nor 1 to count. */
interface NumberedJob {
  readonly count: number;
  readonly numbers?: Strides | undefined;
  readonly recipe: { readonly kind?: string; readonly array?: Strides | undefined };
}

/** Undefined for 1 to count. */
export const numbersOf = ({ numbers, recipe }: Omit<NumberedJob, "count">): Strides | undefined =>
  numbers ?? recipe.array;

const strideLength = ({ first, last, step }: Stride): number => Math.floor((last - first) / step) + 1;

export const strideTotal = (strides: Strides): number => strides.reduce((sum, one) => sum + strideLength(one), 0);

/** The number of the task with this index. */
export function taskNumber(job: Omit<NumberedJob, "count">, index: number): number {
  const strides = numbersOf(job);
  if (strides === undefined) return index + 1;
  const starts = startsOf(strides);
  let low = 0;
  for (let high = starts.length; high - low > 1; ) {
    const middle = (low + high) >>> 1;
    if ((starts[middle] ?? 0) <= index) low = middle;
    else high = middle;
  }
  const stride = strides[low];
  if (stride === undefined) throw new Error(`no number for the task with index ${index}`);
  return stride.first + (index - (starts[low] ?? 0)) * stride.step;
}

/** The index at which each stride begins. */
function startsOf(strides: Strides): readonly number[] {
  const known = STARTS.get(strides);
  if (known !== undefined) return known;
  let next = 0;
  const starts = strides.map((stride) => {
    const start = next;
    next += strideLength(stride);
    return start;
  });
  STARTS.set(strides, starts);
  return starts;
}

/** Cached, because a resumed batch can have many strides, and its tasks are looked up one by one. */
const STARTS = new WeakMap<Strides, readonly number[]>();

/** The index of the task with this number, if the job has it. */
export const taskIndex = (job: NumberedJob, number: number): number | undefined =>
  tasksNumbered(job, { first: number, last: number })[0]?.first;

/** The indices of the tasks whose numbers are in this range, as ranges that are neither sorted nor merged. */
export function tasksNumbered(job: NumberedJob, { first, last }: Range): Ranges {
  const found: Range[] = [];
  let start = 0;
  for (const stride of numbersOf(job) ?? [{ first: 1, last: job.count, step: 1 }]) {
    const length = strideLength(stride);
    const from = Math.max(0, Math.ceil((first - stride.first) / stride.step));
    const to = Math.min(length - 1, Math.floor((last - stride.first) / stride.step));
    if (from <= to) found.push({ first: start + from, last: start + to });
    start += length;
  }
  return found;
}

/** The smallest and the largest number. */
export function numberLimits(job: NumberedJob): Range {
  let first = Number.POSITIVE_INFINITY;
  let last = 0;
  for (const stride of numbersOf(job) ?? [{ first: 1, last: job.count, step: 1 }]) {
    first = Math.min(first, stride.first);
    last = Math.max(last, lastOf(stride));
  }
  return { first, last };
}

const lastOf = (stride: Stride): number => stride.first + (strideLength(stride) - 1) * stride.step;

/** How many strides are listed in a message. The others are counted. */
const MAX_LISTED = 8;

/** "tasks 1 to 8", "tasks 5, 7, 9", "task 1 only" */
export function tasksText(job: NumberedJob): string {
  if (job.count === 0) return "no tasks yet";
  if (job.count === 1) return `task ${taskNumber(job, 0)} only`;
  const strides = numbersOf(job) ?? [{ first: 1, last: job.count, step: 1 }];
  const listed = strides.slice(0, MAX_LISTED).map(strideText).join(", ");
  const more = strideTotal(strides.slice(MAX_LISTED));
  return `tasks ${listed}${more === 0 ? "" : ` and ${more} more`}`;
}

function strideText(stride: Stride): string {
  const length = strideLength(stride);
  const { first, step } = stride;
  if (step > 1 ? length <= MAX_LISTED : length <= 2)
    return Array.from({ length }, (_, at) => first + at * step).join(", ");
  return `${first} to ${lastOf(stride)}${step === 1 ? "" : ` in steps of ${step}`}`;
}

/** Joins two lists. Numbers that continue the last stride extend it. */
export function joinStrides(before: Strides, more: Strides): Strides {
  const last = before.at(-1);
  const [next, ...rest] = more;
  if (last?.step !== 1 || next?.step !== 1 || next.first !== last.last + 1) return [...before, ...more];
  return [...before.slice(0, -1), { ...last, last: next.last }, ...rest];
}

/** At most this many ranges of an array may overlap in one place, so that the check for duplicates is fast. */
const MAX_OVERLAPPING = 100;

/** An array is a set. Returns the error of one that is not: "7 is named twice". */
export function arrayFault(array: Strides): string | undefined {
  let open: Stride[] = [];
  for (const stride of [...array].sort((a, b) => a.first - b.first)) {
    open = open.filter(({ last }) => last >= stride.first);
    for (const other of open) {
      const common = commonNumber(other, stride);
      if (common !== undefined) return `${common} is named twice`;
    }
    open.push(stride);
    if (open.length > MAX_OVERLAPPING) return `more than ${MAX_OVERLAPPING} ranges overlap at ${stride.first}`;
  }
  return undefined;
}

/** The smallest common number. `b` does not begin before `a`. */
function commonNumber(a: Stride, b: Stride): number | undefined {
  // b.first + n * b.step must leave the same remainder as a.first when divided by a.step.
  const { divisor, inverse } = euclid(b.step, a.step);
  const distance = a.first - b.first;
  if (distance % divisor !== 0) return undefined;
  const modulus = BigInt(a.step / divisor);
  const product = (BigInt(distance / divisor) * BigInt(inverse)) % modulus;
  const common = b.first + Number((product + modulus) % modulus) * b.step;
  return common <= Math.min(a.last, b.last) ? common : undefined;
}

/** The greatest common divisor, and `inverse` with value * inverse = divisor, modulo `modulus`. */
function euclid(value: number, modulus: number): { readonly divisor: number; readonly inverse: number } {
  let [divisor, rest] = [value, modulus];
  let [inverse, next] = [1, 0];
  while (rest !== 0) {
    const quotient = Math.floor(divisor / rest);
    [divisor, rest] = [rest, divisor - quotient * rest];
    [inverse, next] = [next, inverse - quotient * next];
  }
  return { divisor, inverse };
}

/** Whether these numbers only rise, as `numbers` of a job must. */
export const isRising = (strides: Strides): boolean =>
  strides.every((stride, at) => at === 0 || stride.first > lastOf(strides[at - 1] ?? stride));
