/**
 * A worker of ours: takes tasks and requests from a broker, does them, and gives every result back exactly as it was, whatever
 * happens to the link in between.
 *
 *   down      no link, or one that has not said WELCOME: tasks go on, results and output are kept
 *   joined    WELCOME has come: results and output flow
 *   leaving   LEAVING was sent: stock was given back, what runs is stopped or awaited, then the link is closed
 *   ended     nothing runs, nothing is kept open
 *
 * A task passes through the ledger (stock, running, finished). Between the end of its process and its DONE stands its output: DONE
 * follows the last OUTPUT, so until that is sent the task counts as running.
 */

import type { Log } from "../broker/log.js";
import { asLaboroError, type LaboroError } from "../model/errors.js";
import type { JobId, SessionId } from "../model/ids.js";
import type { Amounts } from "../model/recipe.js";
import type { CloseReason } from "../protocols/laboro/connection.js";
import { type Dial, dial, type LinkOf } from "../protocols/laboro/dial.js";
import {
  type DoneTask,
  type JobRecipe,
  LINK_VERSION,
  RECIPES_REMEMBERED,
  type TaskRange,
  type TaskRef,
  type ToWorker,
  type Welcome,
} from "../protocols/laboro/messages.js";
import type { JobFiles } from "./command-of.js";
import { attemptKey, Deliveries } from "./deliveries.js";
import { Ledger, type StockedTask } from "./ledger.js";
import type { Slots } from "./processes/index.js";
import { Room } from "./room.js";
import type { Services } from "./services.js";
import { readSpooled, writeSpooled } from "./spool/entry.js";
import type { WorkerDirectory } from "./spool/identity.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import { TaskOutput } from "./spool/task-output.js";
import { type Run, type RunEnd, TaskRunner } from "./task-runner.js";

export interface AgentParts {
  readonly directory: WorkerDirectory;
  readonly spool: ResultSpool;
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly services: Services;
  readonly log: Log;
  readonly now: () => number;
}

export interface AgentOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly name: string;
  readonly session: SessionId;
  readonly pool: string;
  readonly tags: readonly string[];
  readonly total: Amounts;
  readonly reserveRequests: number;
  /** How long a cancelled task has between SIGTERM and SIGKILL. */
  readonly cancelGraceMs: number;
  readonly onRefused: (error: LaboroError) => void;
  /** The broker asks the worker to stop. */
  readonly onStop: () => void;
}

type Link = LinkOf<"worker">;

interface Running {
  readonly run: Run;
  readonly needs: Amounts;
  readonly slot: number;
  /** Its end is of no interest (struck), or is reported as given back (the worker leaves). */
  fate: "report" | "drop" | "return";
}

/** Jobs whose recipe is remembered: twice what the broker counts on. */
const RECIPES_KEPT = 2 * RECIPES_REMEMBERED;

export class Agent {
  readonly #parts: AgentParts;
  readonly #options: AgentOptions;
  readonly #ledger = new Ledger();
  readonly #deliveries: Deliveries;
  readonly #room: Room;
  readonly #runner: TaskRunner;
  readonly #recipes = new Map<JobId, JobRecipe>();
  readonly #running = new Map<string, Running>();
  readonly #calls = new Map<number, AbortController>();
  readonly #dial: Dial;
  #link: Link | undefined;
  #leaving = false;
  #started: TaskRef[] = [];
  #flushing = false;
  #whenIdle: (() => void)[] = [];

  constructor(parts: AgentParts, options: AgentOptions, spooled: readonly UnacknowledgedResult[]) {
    this.#parts = parts;
    this.#options = options;
    this.#room = new Room(options.total);
    this.#runner = new TaskRunner(parts.slots, parts.files, parts.services, parts.now);
    this.#deliveries = new Deliveries(parts.directory.outputDirectory, ({ error }) =>
      parts.log.warn({ code: error.code }, `output is lost here: ${error.message}`),
    );
    for (const one of spooled) this.#takeUp(one);
    this.#dial = dial<"worker">({
      from: "worker",
      urls: options.urls,
      token: options.token,
      log: parts.log,
      onOpen: (link) => this.#join(link),
      onMessages: (batch, link) => this.#receive(batch, link),
      onDown: (reason) => this.#down(reason),
      onRefused: options.onRefused,
    });
  }

  get joined(): boolean {
    return this.#link !== undefined;
  }

  get running(): number {
    return this.#running.size;
  }

  /** Tell the broker what is offered now. */
  servicesChanged(): void {
    this.#link?.send({ type: "SERVICES", services: this.#parts.services.names });
  }

  /**
   * Orderly stop: give the stock back, stop what runs (or await it), deliver what is done, close. A result that cannot
   * be delivered within `patienceMs` stays in the spool for the next start.
   */
  async leave(options: {
    readonly finish: boolean;
    readonly graceMs: number;
    readonly patienceMs: number;
  }): Promise<void> {
    this.#leaving = true;
    if (this.#link !== undefined) {
      this.#link.send({ type: "LEAVING" });
      this.#giveBack(this.#ledger.unstockAll());
    }
    if (!options.finish) {
      for (const running of this.#running.values()) {
        running.fate = "return";
        running.run.stop(options.graceMs);
      }
    }
    for (const aborter of this.#calls.values()) aborter.abort();
    await this.#untilRunningEnded();
    if (this.#link !== undefined && !this.#ledger.idle) await this.#untilIdle(options.patienceMs);
    this.#dial.stop(1000, "the worker stops");
    await this.#deliveries.close();
  }

  // The link

  #join(link: Link): void {
    const { name, session, pool, tags, total, reserveRequests } = this.#options;
    link.send({
      type: "JOIN",
      version: LINK_VERSION,
      worker: this.#parts.directory.id,
      session,
      name,
      total,
      tags,
      pool,
      services: this.#parts.services.names,
      reserveRequests,
      held: this.#ledger.held(),
    });
  }

  #down(reason: CloseReason): void {
    this.#parts.log.warn({ code: reason.code }, `the link to the broker is down: ${reason.text}`);
    this.#link = undefined;
    this.#deliveries.pause();
    for (const aborter of this.#calls.values()) aborter.abort();
    this.#calls.clear();
    for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  #receive(batch: readonly ToWorker[], link: Link): void {
    for (const message of batch) this.#handle(message, link);
    this.#pump();
  }

  #handle(message: ToWorker, link: Link): void {
    switch (message.type) {
      case "WELCOME":
        this.#welcome(message, link);
        break;
      case "RECIPE":
        this.#learn(message);
        break;
      case "TASKS":
        this.#ledger.receive(message, message.entries);
        break;
      case "ACK":
        for (const { tasks } of this.#ledger.acknowledge(message.seq)) for (const task of tasks) this.#delivered(task);
        break;
      case "CREDIT":
        this.#deliveries.credit(message.bytes);
        break;
      case "RETRACT":
        link.send({ type: "RETRACTED", tasks: this.#ledger.unstock(message.tasks) });
        break;
      case "CANCEL":
        this.#cancel(message.tasks, link);
        break;
      case "CALL":
        this.#call(message, link);
        break;
      case "UNCALL":
        this.#calls.get(message.id)?.abort();
        break;
      case "BROKERS":
        this.#dial.setUrls(message.urls);
        break;
      case "STOP":
        this.#options.onStop();
        break;
      case "DRAIN":
      case "CONFIG":
      case "BEAT":
        break;
    }
  }

  #welcome(message: Welcome, link: Link): void {
    this.#link = link;
    link.startHeartbeat(message.heartbeatMs);
    for (const task of this.#ledger.strike(message.drop)) this.#drop(task);
    for (const { job, first, last, attempt } of message.drop) {
      for (let index = first; index <= last; index++) this.#delivered({ job, index, attempt });
    }
    for (const batch of this.#ledger.unacknowledged()) link.send({ type: "DONE", ...batch });
    this.#deliveries.resume(message.keep, message.window, (out) => link.send(out));
    if (this.#leaving) {
      link.send({ type: "LEAVING" });
      this.#giveBack(this.#ledger.unstockAll());
    }
    this.#parts.log.info({ broker: message.broker }, "joined the broker");
  }

  // Tasks

  /** The broker repeats a recipe that is not among the last it sent, so old ones may go when nothing here is of them. */
  #learn(recipe: JobRecipe): void {
    this.#recipes.delete(recipe.job);
    this.#recipes.set(recipe.job, recipe);
    if (this.#recipes.size <= RECIPES_KEPT) return;
    const inUse = this.#ledger.jobs();
    for (const job of this.#recipes.keys()) {
      if (this.#recipes.size <= RECIPES_KEPT) return;
      if (inUse.has(job)) continue;
      this.#recipes.delete(job);
      this.#parts.files.forget(job);
    }
  }

  /** Start what fits, and send what there is to tell. */
  #pump(): void {
    if (!this.#leaving) {
      this.#doNoops();
      const fits = (job: JobId): boolean => {
        const recipe = this.#recipes.get(job);
        return recipe !== undefined && this.#room.fits(recipe.needs);
      };
      for (let task = this.#ledger.start(fits); task !== undefined; task = this.#ledger.start(fits)) this.#start(task);
    }
    this.#flushSoon();
  }

  /** Nothing to run: they are done when they arrive. */
  #doNoops(): void {
    const stretches = this.#ledger.takeStretches((job) => this.#recipes.get(job)?.recipe.kind === "noop");
    const at = this.#parts.now();
    for (const { job, first, last, attempt } of stretches) {
      const done: DoneTask[] = [];
      for (let index = first; index <= last; index++) {
        done.push({ job, index, attempt, code: 0, started: at, ended: at, outputEnd: 0 });
      }
      this.#ledger.addFinished(done);
    }
  }

  #start(task: StockedTask): void {
    const recipe = this.#recipes.get(task.job);
    if (recipe === undefined) return;
    const slot = this.#room.take(recipe.needs);
    const run = this.#runner.run(task, recipe, slot, {
      output: (stream, bytes) => {
        if (this.#deliveries.of(task) === undefined) this.#openOutput(task, recipe.limits.outputCap);
        this.#deliveries.write(task, stream, bytes);
      },
      ended: (end) => this.#ended(task, end),
    });
    this.#running.set(attemptKey(task), { run, needs: recipe.needs, slot, fate: "report" });
    this.#started.push({ job: task.job, index: task.index, attempt: task.attempt });
  }

  #openOutput(task: StockedTask, cap: number): void {
    this.#deliveries.open(task, new TaskOutput(this.#deliveries.settingsFor(task, cap)), () => {});
  }

  #ended(task: StockedTask, end: RunEnd): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    this.#running.delete(attemptKey(task));
    this.#room.give(running.needs, running.slot);
    const ref = { job: task.job, index: task.index, attempt: task.attempt };
    if (running.fate === "report") this.#report(ref, end);
    else this.#deliveries.discard(ref);
    if (running.fate === "return") {
      this.#ledger.strike([{ ...ref, first: ref.index, last: ref.index }]);
      this.#giveBack([{ job: ref.job, attempt: ref.attempt, first: ref.index, last: ref.index }]);
    }
    this.#pump();
    if (this.#running.size === 0 && this.#leaving) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  /** Spool the result; DONE goes when the task's output has gone. */
  #report(ref: TaskRef, end: RunEnd): void {
    const output = this.#deliveries.of(ref);
    const done: DoneTask = { ...end, ...ref, outputEnd: output?.end() ?? 0 };
    void this.#spool(done, output);
    if (output === undefined) this.#ledger.finish(done);
    else this.#deliverThenFinish(done, output);
  }

  #deliverThenFinish(done: DoneTask, output: TaskOutput): void {
    this.#deliveries.open(done, output, () => {
      if (this.#ledger.finish(done)) this.#flushSoon();
    });
    this.#deliveries.pump();
  }

  async #spool(done: DoneTask, output: TaskOutput | undefined): Promise<void> {
    try {
      const packed = output?.pack();
      if (output !== undefined && packed === undefined) await output.persist();
      this.#parts.spool.append(attemptKey(done), writeSpooled(done, packed));
    } catch (cause) {
      this.#parts.log.warn(
        { code: asLaboroError(cause).code },
        `a result is not spooled: ${asLaboroError(cause).message}`,
      );
    }
  }

  /** A result that an earlier life of this worker could not deliver. */
  #takeUp(spooled: UnacknowledgedResult): void {
    const entry = readSpooled(spooled.payload);
    if (entry === undefined) {
      this.#parts.log.warn({ key: spooled.key }, "a spooled result cannot be read and is given up");
      this.#parts.spool.acknowledged(spooled.key);
      return;
    }
    const { done, packed } = entry;
    this.#ledger.resume(done);
    const output = this.#spooledOutput(done, packed);
    if (output === undefined) this.#ledger.finish(done);
    else this.#deliverThenFinish(done, output);
  }

  #spooledOutput(task: TaskRef, packed: Uint8Array | undefined): TaskOutput | undefined {
    const settings = this.#deliveries.settingsFor(task);
    try {
      return packed === undefined ? TaskOutput.load(settings) : TaskOutput.unpack(packed, settings);
    } catch (cause) {
      // The result counts without its output; the offsets show that some is missing.
      const { code, message } = asLaboroError(cause);
      this.#parts.log.warn({ code, task: attemptKey(task) }, `spooled output is lost: ${message}`);
      return undefined;
    }
  }

  /** The broker has it, or nobody wants it. */
  #delivered(task: TaskRef): void {
    this.#parts.spool.acknowledged(attemptKey(task));
    this.#deliveries.discard(task);
    if (this.#ledger.idle) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  #drop(task: TaskRef): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    running.fate = "drop";
    running.run.stop(this.#options.cancelGraceMs);
  }

  #cancel(tasks: readonly TaskRange[], link: Link): void {
    const unstarted = this.#ledger.unstock(tasks);
    if (unstarted.length > 0) link.send({ type: "CANCELLED", tasks: unstarted });
    for (const { job, first, last, attempt } of tasks) {
      for (const running of this.#runningIn(job, first, last, attempt)) running.run.stop(this.#options.cancelGraceMs);
    }
  }

  *#runningIn(job: JobId, first: number, last: number, attempt: number): Iterable<Running> {
    // Whichever is fewer: the tasks named, or those that run.
    if (last - first < this.#running.size) {
      for (let index = first; index <= last; index++) {
        const running = this.#running.get(attemptKey({ job, index, attempt }));
        if (running !== undefined) yield running;
      }
      return;
    }
    for (const [key, running] of this.#running) {
      const [ofJob, index, ofAttempt] = key.split(".").map(Number);
      if (ofJob === job && ofAttempt === attempt && index !== undefined && index >= first && index <= last)
        yield running;
    }
  }

  #giveBack(tasks: readonly TaskRange[]): void {
    if (tasks.length > 0) this.#link?.send({ type: "RETRACTED", tasks });
  }

  // Requests

  #call(message: ToWorker & { type: "CALL" }, link: Link): void {
    const { id, service, body } = message;
    const aborter = new AbortController();
    this.#calls.set(id, aborter);
    const answer = this.#parts.services.call(service, body, aborter.signal);
    const reply = (served: { body: Uint8Array; error?: LaboroError["code"] }): void => {
      this.#calls.delete(id);
      if (link.isOpen) link.send({ type: "REPLY", id, ...served });
    };
    if (answer instanceof Promise) void answer.then(reply);
    else reply(answer);
  }

  // Telling

  /** At the end of this turn: one STARTED and one DONE for all that happened in it. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    const started = this.#started.filter((task) => this.#ledger.isRunning(task));
    this.#started = [];
    if (this.#link === undefined) return;
    if (started.length > 0) this.#link.send({ type: "STARTED", tasks: started });
    const batch = this.#ledger.nextBatch();
    if (batch !== undefined) this.#link.send({ type: "DONE", ...batch });
  }

  async #untilRunningEnded(): Promise<void> {
    while (this.#running.size > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
  }

  async #untilIdle(patienceMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, patienceMs);
    });
    let over = false;
    void late.then(() => {
      over = true;
    });
    while (!over && this.#link !== undefined && !this.#ledger.idle) {
      await Promise.race([late, new Promise<void>((resolve) => this.#whenIdle.push(resolve))]);
    }
    clearTimeout(timer);
  }
}
