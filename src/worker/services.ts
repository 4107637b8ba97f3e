/** The services of a worker: functions of this process, modules in threads, programs. And the calls of them. */
import { format, types } from "node:util";
import { badInput, type ErrorCode, LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { TaskEnd } from "../model/outcome.js";
import {
  asBuffer,
  decodeInput,
  decodeOutput,
  describeError,
  type ErrorDetails,
  encodeOutput,
  errorFromValue,
  type HandlerContext,
  type TaskDefinition,
  type TaskHandler,
  type TaskOutcome,
} from "../model/task-definition.js";

export type Answer = Uint8Array | string | undefined;

/** A handler without a definition: bytes in, bytes or text out. */
export type Handler = (body: Buffer, context: HandlerContext) => Answer | PromiseLike<Answer>;

/** How a call may be passed on, to a thread for example. */
export type CallHandler = (body: Buffer, call: ServiceCall) => Answer | PromiseLike<Answer>;

export interface ServiceReply {
  readonly body: Uint8Array;
  readonly error?: ErrorCode;
  /** Set for an error. */
  readonly details?: ErrorDetails;
}

/** What a handler knows of its task. */
export type CallInfo = Pick<HandlerContext, "job" | "index" | "number" | "attempt" | "key" | "deadline" | "after">;

export interface ResultsPage {
  /** What the tasks of the job call. */
  readonly service?: string | undefined;
  readonly tasks: readonly {
    readonly index: number;
    readonly number: number;
    readonly state: TaskEnd;
    readonly error?: string;
    readonly valueBytes?: number;
    readonly value?: Uint8Array;
  }[];
  readonly next?: number | undefined;
}

/** Where a call sends everything that is not its result. */
export interface CallPort {
  /** A JSON text. */
  progress(value: string): void;
  /** A line, with its end. */
  log(line: string): void;
  /** Results of a job that this job depends on. With `limit` 1 the value is included whatever its size. */
  results(job: number, from: number, limit?: 1): Promise<ResultsPage>;
}

const EMPTY = new Uint8Array(0);
/** Bytes of a progress value. */
const MAX_PROGRESS = 4096;

/** Why signals are aborted when the worker stops. */
export const workerStops = (): LaboroError => new LaboroError("LABORO_WORKER_STOPPING", "the worker stops");

export const REQUEST_INFO: CallInfo = { job: 0, index: 0, number: 1, attempt: 1, after: [] };

/** A call of a handler. It ends once: with the reply, or past the grace of an abort. Later values are dropped. */
export class ServiceCall {
  readonly #service: string;
  readonly info: CallInfo;
  readonly port: CallPort;
  #onEnd: ((reply: ServiceReply) => void) | undefined;
  /** A signal is costly to create, and most handlers never read it. */
  #controller: AbortController | undefined;
  #abortReason: Error | undefined;
  #abandoned = false;
  #onAbandoned: (() => void) | undefined;
  #graceEnd = Number.POSITIVE_INFINITY;
  #graceTimer: NodeJS.Timeout | undefined;

  constructor(service: string, info: CallInfo, port: CallPort, onEnd: (reply: ServiceReply) => void) {
    this.#service = service;
    this.info = info;
    this.port = port;
    this.#onEnd = onEnd;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#abortReason !== undefined) this.#controller.abort(this.#abortReason);
    }
    return this.#controller.signal;
  }

  // Functions without `this`: a handler may take them out of its context. Most handlers use none of them.
  get progress(): HandlerContext["progress"] {
    return (value) => {
      const text = JSON.stringify(value) ?? "null";
      if (Buffer.byteLength(text) > MAX_PROGRESS)
        throw new LaboroError("LABORO_BODY_TOO_LARGE", `a progress value has at most ${MAX_PROGRESS} bytes as JSON`);
      if (this.#onEnd !== undefined) this.port.progress(text);
    };
  }

  get log(): HandlerContext["log"] {
    return (...values) => {
      if (this.#onEnd !== undefined) this.port.log(`${format(...values)}\n`);
    };
  }

  get results(): HandlerContext["results"] {
    return (task, job) => this.#results(task, job === undefined ? this.info.after : [job]);
  }

  async *#results<Output>(
    task: TaskDefinition<unknown, Output, unknown>,
    jobs: readonly number[],
  ): AsyncGenerator<TaskOutcome<Output>> {
    for (const job of jobs) {
      if (!this.info.after.includes(job)) throw badInput(`job ${this.info.job} does not depend on job ${job}`);
      let from: number | undefined = 0;
      while (from !== undefined) {
        const page: ResultsPage = await this.port.results(job, from);
        // Another task's job: its values have other types.
        if (page.service !== task.name) break;
        for (const one of page.tasks) {
          const large = one.value === undefined && one.valueBytes !== undefined;
          const value = large ? (await this.port.results(job, one.index, 1)).tasks[0]?.value : one.value;
          yield outcomeOf(task, job, { ...one, ...(value && { value }) });
        }
        from = page.next;
      }
    }
  }

  /** It ended past the grace, without a reply of the handler. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  /** Called when the call ends past the grace, so that its thread or process can be ended. */
  onAbandoned(act: () => void): void {
    this.#onAbandoned = act;
  }

  /** Aborts the signal, and ends the call after the grace. A later call can only shorten the grace. */
  abort(graceMs: number, reason: Error): void {
    const graceEnd = performance.now() + graceMs;
    if (this.#onEnd === undefined || graceEnd >= this.#graceEnd) return;
    this.#graceEnd = graceEnd;
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => {
      this.#abandoned = true;
      this.#onAbandoned?.();
      const why = this.#abortReason?.message;
      const text = `service ${this.#service}: ${why}, and the handler did not end within ${Math.round(graceMs)} ms`;
      this.end(failure(new LaboroError("LABORO_SERVICE_FAILED", text)));
    }, graceMs);
    this.#abortReason ??= reason;
    this.#controller?.abort(this.#abortReason);
  }

  end(reply: ServiceReply): void {
    const onEnd = this.#onEnd;
    this.#onEnd = undefined;
    clearTimeout(this.#graceTimer);
    onEnd?.(reply);
  }
}

function outcomeOf<Output>(
  task: TaskDefinition<unknown, Output, unknown>,
  job: number,
  { index, number, state, value, error }: ResultsPage["tasks"][number],
): TaskOutcome<Output> {
  const common = { job, index, number };
  if (state === "succeeded") return { ...common, state, value: decodeOutput(task, value) as Output };
  return { ...common, state, thrown: errorFromValue(value) ?? new Error(error ?? state) };
}

/** A handler, and where its answer goes if a task calls it: into the result as its value, or into the output. */
export interface Service {
  readonly handler: CallHandler;
  readonly returnsValue: boolean;
}

/** Of any package version: a module may load another copy of laboro than its worker. */
export const isTaskHandler = (value: unknown): value is TaskHandler =>
  typeof value === "object" &&
  value !== null &&
  "run" in value &&
  typeof value.run === "function" &&
  "task" in value &&
  typeof (value.task as { name?: unknown } | undefined)?.name === "string";

/**
 * What a handler gets. Its members are its own, so that it can be spread: `{ ...context, db }`. Only `signal` is not: an
 * own getter would take more time than all else that a call needs of the worker.
 */
class Context implements HandlerContext {
  readonly job: number;
  readonly index: number;
  readonly number: number;
  readonly attempt: number;
  readonly after: readonly number[];
  readonly key: string | undefined;
  readonly deadline: number | undefined;
  readonly progress: HandlerContext["progress"];
  readonly log: HandlerContext["log"];
  readonly results: HandlerContext["results"];
  readonly #call: ServiceCall;

  constructor(call: ServiceCall) {
    const { job, index, number, attempt, after, key, deadline } = call.info;
    this.job = job;
    this.index = index;
    this.number = number;
    this.attempt = attempt;
    this.after = after;
    this.key = key;
    this.deadline = deadline;
    this.progress = call.progress;
    this.log = call.log;
    this.results = call.results;
    this.#call = call;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }
}

/** A handler without a definition. */
export const untypedService = (handler: Handler): Service => ({
  returnsValue: false,
  handler: (body, call) => handler(body, new Context(call)),
});

/** Ready to be called with bytes: decodes the input, checks it, encodes the result. */
export const typedService = ({ task, run }: TaskHandler): Service => ({
  returnsValue: true,
  handler: async (body, call) => {
    const input = await decodeInput(task, body).catch((cause: unknown) => {
      // A retry would fail again.
      throw Object.assign(cause as Error, { retryAfterMs: "never" });
    });
    return encodeOutput(task, await run(input as never, new Context(call)));
  },
});

export class Services {
  readonly #services = new Map<string, Service>();

  get names(): readonly string[] {
    return [...this.#services.keys()];
  }

  set(name: string, service: Service): void {
    this.#services.set(name, service);
  }

  returnsValue(name: string): boolean {
    return this.#services.get(name)?.returnsValue === true;
  }

  /** Ends the call with the handler's reply, at once if there is no promise. Never throws: an error is a reply. */
  start(call: ServiceCall, service: string, body: Uint8Array): void {
    const handler = this.#services.get(service)?.handler;
    if (handler === undefined) {
      call.end(failure(`this worker does not offer ${service}`));
      return;
    }
    const succeed = (answer: unknown): void => call.end(replyOf(service, answer));
    const fail = (cause: unknown): void => call.end(failure(cause));
    try {
      const answer = handler(asBuffer(body), call);
      if (isThenable(answer)) Promise.resolve(answer).then(succeed, fail);
      else succeed(answer);
    } catch (cause) {
      fail(cause);
    }
  }
}

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";

/** A handler written in JavaScript may return anything. */
function replyOf(service: string, answer: unknown): ServiceReply {
  if (answer === undefined) return { body: EMPTY };
  if (typeof answer === "string") return { body: Buffer.from(answer) };
  if (types.isUint8Array(answer)) return { body: answer };
  const found = answer === null ? "null" : `a value of type ${typeof answer}`;
  const expected = "expected text, a Uint8Array or undefined";
  return failure(new LaboroError("LABORO_BAD_REPLY", `service ${service}: the handler returned ${found}, ${expected}`));
}

/** Codes that reach the client. Any other error is the handler's own. */
const REPLY_CODES: ReadonlySet<unknown> = new Set<ErrorCode>(["LABORO_BAD_REPLY", "LABORO_BODY_TOO_LARGE"]);

function failure(cause: unknown): ServiceReply {
  const details = describeError(cause);
  const { name, code, retryAfterMs } = details;
  const message = details.message || name;
  const badInput = code === "LABORO_BAD_INPUT" && retryAfterMs === "never";
  const own = name === "LaboroError" && (REPLY_CODES.has(code) || badInput);
  return { error: own ? (code as ErrorCode) : "LABORO_SERVICE_FAILED", body: Buffer.from(message), details };
}

/** Detects functions that keep the event loop busy for longer than a heartbeat: the broker gets nothing. */
export class BlockWatch {
  readonly #log: Pick<Log, "warn">;
  readonly #now: () => number;
  readonly #names = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Pick<Log, "warn">, now: () => number = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** A function of this process handles it. */
  add(name: string): void {
    this.#names.add(name);
  }

  start(heartbeatMs: number): void {
    this.stop();
    const intervalMs = heartbeatMs / 2;
    let last = this.#now();
    this.#timer = setInterval(() => {
      const blockedMs = Math.round(this.#now() - last - intervalMs);
      last = this.#now();
      if (blockedMs < heartbeatMs || this.#names.size === 0) return;
      const names = [...this.#names].join(", ");
      this.#log.warn(
        { blockedMs, heartbeatMs },
        `the event loop was blocked for longer than a heartbeat: handlers that compute belong in threads (here: ${names})`,
      );
    }, intervalMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
