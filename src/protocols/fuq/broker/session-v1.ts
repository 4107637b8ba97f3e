/**
 * The broker's session of a fuq v1 client. Its states have the names of the specification:
 *
 *   SV_INIT0   initial; sends OK(0)
 *   SV_INIT1   waits for OK(nproc)
 *   SV_INIT2   has it, and sends OK(nproc)
 *   SV_LOOP2   sends tasks while slots are free, and waits for messages (also SV_LOOP0 and SV_LOOP1)
 *   SV_LOOP3   records an UPDATE; its OK is sent before any JOB
 *   SV_EXIT    the connection is closed
 *
 * A JOB has no reply. It counts as started unless an ERROR follows. The ERROR names no job and refers to the newest
 * one. The protocol has no CANCEL and no resume.
 */
import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { Job } from "../../../model/job.js";
import {
  ERRORS,
  errorName,
  type MessageV1,
  pairKey,
  STOP_AT_ONCE,
  type UnreadableV1,
  type Update,
} from "../messages.js";
import { ForemanTasks, profileOf, type WorkerConnection } from "./foreman-tasks.js";

/** After STOP the client disconnects by itself. If it does not, the broker does after this time. */
const LEAVING_MS = 2_000;
/** UPDATEs that may wait to be recorded. By the specification a client waits for each OK. */
const WAITING_LIMIT = 64;

export class FuqWorkerSessionV1 implements WorkerPort {
  readonly #connection: WorkerConnection<MessageV1>;
  readonly #assigned: ForemanTasks;
  #state: "SV_INIT0" | "SV_INIT1" | "SV_INIT2" | "SV_LOOP2" | "SV_LOOP3" | "SV_EXIT" = "SV_INIT0";
  #updates: Update[] = [];
  #stopping = false;
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(connection: WorkerConnection<MessageV1>) {
    this.#connection = connection;
    this.#assigned = new ForemanTasks(connection.core, this, LEAVING_MS, () => this.#sendTasks());
  }

  start(): void {
    this.#connection.send({ type: "OK", nproc: 0 });
    this.#state = "SV_INIT1";
  }

  onMessage(message: MessageV1 | UnreadableV1): void {
    if (this.#state === "SV_EXIT") return;
    if (this.#state === "SV_INIT1") this.#onGreeting(message);
    else if (message.type === "UPDATE") this.#onUpdate(message.update);
    else if (message.type === "ERROR") this.#onError(message.code);
    else if (message.type === "OK") this.#connection.onPeerError("an OK that answers nothing");
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
      this.#connection.onPeerError(`${code}: ${why}`);
      this.#connection.close();
    });
  }

  async #join(numProcs: number): Promise<void> {
    const profile = profileOf(this.#connection);
    this.#connection.onNamed(profile.name);
    await this.#assigned.join(profile);
    if (this.#state !== "SV_INIT2") return;
    this.#connection.send({ type: "OK", nproc: numProcs });
    this.#state = "SV_LOOP2";
    this.#assigned.reconcileHello({ numProcs, running: null });
  }

  #sendTasks(): void {
    // They cannot be sent.
    this.#assigned.takeCancels();
    if (this.#state !== "SV_LOOP2") return;
    for (let held = this.#assigned.nextUnsent(); held?.description !== undefined; held = this.#assigned.nextUnsent()) {
      this.#connection.send({ type: "JOB", task: held.description });
      this.#assigned.started(held);
      held.tookLastSlot = this.#assigned.counts.nproc === 0;
    }
  }

  #onUpdate(update: Update): void {
    if (this.#updates.length >= WAITING_LIMIT) {
      this.#connection.onPeerError(`${WAITING_LIMIT} UPDATEs without waiting for their OK: disconnected`);
      this.#connection.close();
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
    // By the specification a client that gets 0 exits, even if it runs tasks.
    this.#connection.send({ type: "OK", nproc: nproc === 0 ? nrun : nproc });
    this.#state = "SV_LOOP2";
    if (this.#stopping && nrun === 0) this.#closeSoon();
    this.#sendTasks();
    this.#recordNext();
  }

  #onError(code: number): void {
    const newest = this.#assigned.all().findLast(({ state }) => state === "running");
    if (newest === undefined) {
      this.#connection.onPeerError(`ERROR(${errorName(code)}) from a client that has no task`);
      return;
    }
    const { job, task } = newest;
    this.#connection.log.info(
      { job, task },
      `the client refused the task with ERROR(${errorName(code)}): it returns to the queue`,
    );
    this.#assigned.refused(newest, this.#assigned.counts.nproc + 1);
  }

  #refuse(why: string): void {
    this.#connection.onPeerError(why);
    this.#connection.send({ type: "ERROR", code: ERRORS.bad_message });
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
    this.#connection.send({ type: "STOP", count });
    capacity.slots = Math.max(0, capacity.slots - count);
    this.#assigned.publishSlots();
  }

  close(): void {
    this.#end();
    this.#connection.close();
  }

  // It offers no services.
  call(): void {}
  cancelCall(): void {}

  #closeSoon(): void {
    this.#closeTimer ??= setTimeout(() => this.#connection.close(), LEAVING_MS);
  }
}
