/**
 * Prints the output of a job's tasks: when they end, in the order of their ends or of their entries, or live, as they
 * write it. Output is printed byte for byte, or line by line where lines of several tasks could mix.
 */
import type { OutputStream } from "../../../model/outcome.js";
import { EndedTasks } from "../../../model/ranges.js";
import type { TaskOutput } from "../../../protocols/laboro/messages.js";
import { AttemptOutput, type OutputSource, type TaskAttempt } from "./attempt-output.js";
import type { OutputWriter, TaskWriter } from "./output-writer.js";

interface PrinterOptions extends OutputSource {
  readonly writer: OutputWriter;
  /** Where the output of this task goes; `writer` or around it. */
  readonly writerOf: (index: number) => TaskWriter;
  readonly keepOrder?: boolean;
  /** Print the output of running tasks as it comes. */
  readonly live?: boolean;
  /** The output of these tasks was printed, except for `missingBytes`. */
  readonly onPrinted?: (tasks: readonly TaskAttempt[], missingBytes: number) => void;
}

type AttemptRef = Pick<TaskAttempt, "index" | "attempt">;

interface LiveAttempt {
  readonly output: AttemptOutput;
  readonly printed: Promise<void>;
}

/** Outputs fetched at one time. */
const FETCH_CONCURRENCY = 16;
/** Bytes of small outputs that are kept in memory until their turn. */
const KEPT_BYTES = 64 * 1024 * 1024;
/** How many tasks are printed live. Each is a pending request, of which a connection may have 250. */
const MAX_LIVE = 64;

export class OutputPrinter {
  readonly #options: PrinterOptions;
  readonly #live = new Map<number, LiveAttempt>();
  /** Running tasks whose output is printed when they end. */
  readonly #later = new Set<number>();
  readonly #printed = new EndedTasks();
  readonly #outOfOrder = new Map<number, TaskAttempt>();
  #keptBytes = 0;
  #next = 0;

  constructor(options: PrinterOptions) {
    this.#options = options;
  }

  /** Relayed output. Resolves when it was printed or spooled. */
  async take(output: TaskOutput): Promise<void> {
    if (this.#printed.has(output)) return;
    await (this.#find(output)?.take(output) ?? this.#options.relayed?.take(output));
  }

  /** There is output of these tasks to be read from the broker. */
  outputStored(tasks: readonly AttemptRef[]): void {
    for (const task of tasks) this.#find(task)?.outputStored();
  }

  /** For a task that is not printed: the order does not wait for it. */
  skip(index: number): void {
    if (index === this.#next) this.#next++;
  }

  /** Prints what exists of these tasks; of those that are printed live, the rest. */
  async add(tasks: readonly TaskAttempt[]): Promise<void> {
    for (const task of tasks) if (this.#live.has(task.index)) this.#begin(task).taskEnded(task);
    const others: TaskAttempt[] = [];
    for (const task of tasks) {
      this.#later.delete(task.index);
      const live = this.#live.get(task.index);
      if (live === undefined) {
        others.push(task);
        continue;
      }
      await live.printed;
      this.#live.delete(task.index);
      this.#report([task], live.output.missingBytes);
    }
    if (this.#options.keepOrder === true) await this.#printInOrder(others);
    else await this.#print(others);
  }

  /** No more tasks end: prints those that still wait for an earlier one. Stops those that are printed live. */
  async finish(): Promise<void> {
    for (const { output } of this.#live.values()) output.stop();
    await this.livePrinted();
    for (const task of [...this.#outOfOrder.values()].sort((a, b) => a.index - b.index)) {
      await this.#print([task]);
      this.#forget(task);
    }
  }

  /** Returns when all that is printed live has ended. */
  async livePrinted(): Promise<void> {
    await Promise.all([...this.#live.values()].map(({ printed }) => printed));
  }

  /** Undefined if the task is not printed live. */
  #find({ index, attempt }: AttemptRef): AttemptOutput | undefined {
    const known = this.#live.get(index);
    if (known === undefined && (this.#options.live !== true || this.#later.has(index))) return undefined;
    if (known !== undefined || this.#live.size < MAX_LIVE) return this.#begin({ index, attempt });
    this.#later.add(index);
    return undefined;
  }

  /** An earlier attempt is printed to its end before a later one. */
  #begin({ index, attempt }: AttemptRef): AttemptOutput {
    const before = this.#live.get(index);
    if (before !== undefined && before.output.attempt >= attempt) return before.output;
    // It asks the broker, which says that the attempt has ended.
    before?.output.outputStored();
    const output = this.#outputOf({ index, attempt }, true);
    const printed = before === undefined ? output.print() : before.printed.then(() => output.print());
    // It is awaited later.
    printed.catch(() => {});
    this.#live.set(index, { output, printed });
    return output;
  }

  #outputOf(task: TaskAttempt, live: boolean): AttemptOutput {
    return new AttemptOutput(this.#options, task, this.#options.writerOf(task.index), live);
  }

  #report(tasks: readonly TaskAttempt[], missingBytes: number): void {
    for (const task of tasks) this.#printed.add(task);
    this.#options.onPrinted?.(tasks, missingBytes);
  }

  async #printInOrder(tasks: readonly TaskAttempt[]): Promise<void> {
    for (const task of tasks) if (task.index >= this.#next) this.#keep(task);
    for (let some = this.#nextInOrder(); some.length > 0; some = this.#nextInOrder()) {
      await this.#print(some);
      for (const task of some) this.#forget(task);
      this.#next += some.length;
    }
  }

  /** The tasks whose turn it is: all small ones, or one other. */
  #nextInOrder(): TaskAttempt[] {
    const found: TaskAttempt[] = [];
    for (let at = this.#next; ; at++) {
      const task = this.#outOfOrder.get(at);
      if (task === undefined || (!needsNoFetch(task) && found.length > 0)) return found;
      found.push(task);
      if (!needsNoFetch(task)) return found;
    }
  }

  #keep(task: TaskAttempt): void {
    const { output, ...rest } = task;
    const keeps = output !== undefined && this.#keptBytes + sizeOf(task) <= KEPT_BYTES;
    this.#forget(task);
    this.#outOfOrder.set(task.index, keeps ? task : rest);
    if (keeps) this.#keptBytes += sizeOf(task);
  }

  #forget({ index }: TaskAttempt): void {
    const kept = this.#outOfOrder.get(index);
    if (kept?.output !== undefined) this.#keptBytes -= sizeOf(kept);
    this.#outOfOrder.delete(index);
  }

  async #print(tasks: readonly TaskAttempt[]): Promise<void> {
    const { relayed, writer } = this.#options;
    for (const some of groups(tasks.filter(({ outputBytes }) => outputBytes !== 0))) {
      if (writer.stopped) return;
      if (some.every(needsNoFetch)) {
        await this.#printSmall(some);
        continue;
      }
      const outputs = some.map((task) => ({ task, output: this.#outputOf(task, false) }));
      for (const { output } of outputs) output.prefetch();
      for (const { task, output } of outputs) {
        await output.print();
        writer.endLine();
        relayed?.remove(task.index);
        this.#report([task], output.missingBytes);
      }
    }
  }

  /** Pieces of one stream that follow each other are one write. */
  async #printSmall(tasks: readonly TaskAttempt[]): Promise<void> {
    const { writer, writerOf, stream: only } = this.#options;
    const isTerminal = process.stdout.isTTY || process.stderr.isTTY;
    let gathered: OutputStream = "stdout";
    let parts: Uint8Array[] = [];
    const flush = async (): Promise<void> => {
      const [first] = parts;
      const bytes = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
      parts = [];
      await writer.write(gathered, bytes);
    };
    for (const { index, output = [] } of tasks) {
      const taskWriter = writerOf(index);
      let offset = 0;
      for (const { stream, bytes } of output) {
        offset += bytes.length;
        if (only !== undefined && stream !== only) continue;
        if (taskWriter !== writer) {
          await taskWriter.write(stream, bytes, offset - bytes.length);
          continue;
        }
        if (stream !== gathered) await flush();
        gathered = stream;
        parts.push(bytes);
      }
      await taskWriter.end?.();
      if (!isTerminal) continue;
      await flush();
      writer.endLine();
    }
    await flush();
    this.#report(tasks, 0);
  }
}

const needsNoFetch = ({ output, outputBytes }: TaskAttempt): boolean => output !== undefined || outputBytes === 0;

const sizeOf = ({ outputBytes = 0 }: TaskAttempt): number => outputBytes;

/** Groups neighbouring tasks: those that need no request to the broker, and a few of the others. */
function* groups(tasks: readonly TaskAttempt[]): Generator<readonly TaskAttempt[]> {
  for (let from = 0, to = 0; from < tasks.length; from = to) {
    const small = needsNoFetch(tasks[from] as TaskAttempt);
    const most = small ? tasks.length : from + FETCH_CONCURRENCY;
    while (to < most && to < tasks.length && needsNoFetch(tasks[to] as TaskAttempt) === small) to++;
    yield tasks.slice(from, to);
  }
}
