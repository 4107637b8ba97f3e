/**
 * A client of fuq v1, at the broker: the server's end of one connection, by the states of the text.
 *
 *   SV_INIT0   nothing was said; OK(0) goes out
 *   SV_INIT1   waits for OK(nproc)
 *   SV_INIT2   has it, and sends OK(nproc)
 *   SV_LOOP0, SV_LOOP1   sends tasks while slots are free
 *   SV_LOOP2   waits for what comes
 *   SV_LOOP3   an UPDATE is being recorded; its OK comes before any JOB
 *   SV_EXIT    the connection is gone
 *
 * A JOB has no reply. It counts as begun, unless an ERROR says otherwise, which names no job: the newest is meant. Nothing can be
 * cancelled, and nothing is resumed.
 */

import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { Job } from "../../../model/job.js";
import type { MessageV1, UnreadableV1 } from "../codec-v1.js";
import { ERRORS, errorName, pairKey, STOP_AT_ONCE, type Update } from "../messages.js";
import { ForemanTasks } from "./foreman-tasks.js";
import { FUQ_WORKER } from "./fuq-task.js";
import type { FuqSessionContext } from "./session-context.js";

/** After STOP it goes by itself; if it does not, this is how long it is waited for. */
const LEAVING_MS = 2_000;
/** UPDATEs that may wait to be recorded: the text has the client wait for each OK. */
const WAITING_LIMIT = 64;

type State = "SV_INIT0" | "SV_INIT1" | "SV_INIT2" | "SV_LOOP2" | "SV_LOOP3" | "SV_EXIT";

export class FuqWorkerSessionV1 implements WorkerPort {
  readonly #context: FuqSessionContext<MessageV1>;
  readonly #assigned: ForemanTasks;
  #state: State = "SV_INIT0";
  #updates: Update[] = [];
  #stopping = false;
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(context: FuqSessionContext<MessageV1>) {
    this.#context = context;
    this.#assigned = new ForemanTasks({
      core: context.core,
      port: this,
      onPending: () => this.#handOut(),
      missingMs: LEAVING_MS,
    });
  }

  get joined(): boolean {
    return this.#assigned.joined;
  }

  start(): void {
    this.#context.connection.send({ type: "OK", nproc: 0 });
    this.#state = "SV_INIT1";
  }

  onMessage(message: MessageV1 | UnreadableV1): void {
    if (this.#state === "SV_EXIT") return;
    if (this.#state === "SV_INIT1") this.#onGreeting(message);
    else if (message.type === "UPDATE") this.#onUpdate(message.update);
    else if (message.type === "ERROR") this.#onError(message.code);
    else if (message.type === "OK") this.#context.onPeerError("an OK for which nothing was asked");
    else this.#refuse(message.type === "?" ? message.why : `${message.type} is not for this side`);
  }

  onClose(): void {
    this.#end();
    this.#assigned.disconnected();
  }

  #end(): void {
    this.#state = "SV_EXIT";
    clearTimeout(this.#closeTimer);
    this.#assigned.close();
  }

  #onGreeting(message: MessageV1 | UnreadableV1): void {
    if (message.type !== "OK") {
      this.#refuse(`${message.type} before OK(nproc)`);
      return;
    }
    this.#state = "SV_INIT2";
    this.#join(message.nproc).catch((cause: unknown) => {
      const { code, message: why } = asLaboroError(cause);
      this.#context.onPeerError(`${code}: ${why}`);
      this.#context.connection.close();
    });
  }

  async #join(numProcs: number): Promise<void> {
    const { identify, onNamed, profile, connection } = this.#context;
    const { stopping: _, ...who } = identify(undefined);
    onNamed(who.name);
    await this.#assigned.join({ ...profile, ...who, ...FUQ_WORKER });
    if (this.#state !== "SV_INIT2") return;
    connection.send({ type: "OK", nproc: numProcs });
    this.#state = "SV_LOOP2";
    this.#assigned.reconcileHello({ numProcs, running: null });
  }

  /** One JOB a task. */
  #handOut(): void {
    // The protocol has no CANCEL.
    this.#assigned.takeCancels();
    if (this.#state !== "SV_LOOP2") return;
    for (let held = this.#assigned.nextUnsent(); held?.description !== undefined; held = this.#assigned.nextUnsent()) {
      this.#context.connection.send({ type: "JOB", task: held.description });
      this.#assigned.started(held);
      held.tookLastSlot = this.#assigned.counts.nproc === 0;
    }
  }

  #onUpdate(update: Update): void {
    if (this.#updates.length >= WAITING_LIMIT) {
      this.#context.onPeerError("UPDATEs without waiting for their OK");
      this.#context.connection.close();
      return;
    }
    this.#updates.push(update);
    if (this.#state === "SV_LOOP2") this.#recordNext();
  }

  #recordNext(): void {
    const update = this.#updates.shift();
    if (update === undefined) return;
    this.#state = "SV_LOOP3";
    const held = this.#assigned.get(pairKey(update));
    if (held?.state === "running") this.#assigned.capacity.accepted(held.tookLastSlot ? 0 : 1);
    this.#assigned.updated(update, () => this.#recorded());
  }

  #recorded(): void {
    if (this.#state !== "SV_LOOP3") return;
    const { nproc, nrun } = this.#assigned.counts;
    // By the letter of the text a client that gets 0 leaves, whatever else it runs.
    this.#context.connection.send({ type: "OK", nproc: nproc === 0 ? nrun : nproc });
    this.#state = "SV_LOOP2";
    if (this.#stopping && nrun === 0) this.#closeSoon();
    this.#handOut();
    this.#recordNext();
  }

  #onError(code: number): void {
    const newest = this.#assigned.all().findLast(({ state }) => state === "running");
    if (newest === undefined) {
      this.#context.onPeerError(`ERROR(${errorName(code)}), and it has nothing`);
      return;
    }
    const { job, task } = newest;
    this.#context.log.info({ job, task }, `the client refused it: ERROR(${errorName(code)})`);
    this.#assigned.refused(newest, this.#assigned.counts.nproc + 1);
  }

  #refuse(why: string): void {
    this.#context.onPeerError(why);
    this.#context.connection.send({ type: "ERROR", code: ERRORS.bad_message });
  }

  readonly assign = (job: Job, tasks: AttemptRange): void => this.#assigned.assign(job, tasks);
  readonly retract = (tasks: readonly AttemptRange[]): void => this.#assigned.retract(tasks);
  readonly cancel = (tasks: readonly AttemptRange[]): void => this.#assigned.cancel(tasks);
  readonly drain = (): void => this.#assigned.drain();

  stop(): void {
    if (this.#stopping || this.#state === "SV_EXIT") return;
    this.#stopping = true;
    this.#assigned.markLeaving();
    this.#sendStop(this.#assigned.capacity.slots);
    if (this.#assigned.counts.nrun === 0) this.#closeSoon();
  }

  stopSlots(slots: number | "now"): void {
    if (slots === "now") {
      this.#assigned.markLeaving(true);
      this.#sendStop(STOP_AT_ONCE);
      this.#closeSoon();
    } else if (slots >= this.#assigned.capacity.slots) this.stop();
    else this.#sendStop(slots);
  }

  #sendStop(count: number): void {
    const { capacity } = this.#assigned;
    this.#context.connection.send({ type: "STOP", count });
    capacity.slots = Math.max(0, capacity.slots - count);
    this.#assigned.publishSlots();
  }

  close(): void {
    this.#end();
    this.#context.connection.close();
  }

  // It offers no services.
  call(): void {}
  cancelCall(): void {}

  #closeSoon(): void {
    this.#closeTimer ??= setTimeout(() => this.#context.connection.close(), LEAVING_MS);
  }
}
