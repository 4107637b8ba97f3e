/**
 * A client of fuq v1, at the broker: the server's end of one connection, by the states of the text.
 *
 *   SV_INIT0   nothing was said; OK(0) goes out
 *   SV_INIT1   waits for OK(nproc)
 *   SV_INIT2   has it, and sends OK(nproc)
 *   SV_LOOP0, SV_LOOP1   hands out what there is, as far as there is room
 *   SV_LOOP2   waits for what comes
 *   SV_LOOP3   an UPDATE is being recorded; its OK comes before any JOB
 *   SV_EXIT    the connection is gone
 *
 * A JOB has no reply. It counts as begun, unless an ERROR says otherwise, which names no job: the newest is meant. Nothing can be
 * cancelled, and nothing is resumed.
 */

import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { TasksOf } from "../../../dispatch/index.js";
import type { Job } from "../../../model/job.js";
import type { MessageV1, UnreadableV1 } from "../codec-v1.js";
import { COUNT_LIMIT, ERRORS, errorName, type Update } from "../messages.js";
import type { HeldTask } from "./held-tasks.js";
import type { ForemanParts } from "./parts.js";
import { WorkerDesk } from "./worker-desk.js";

export interface TransportV1 {
  send(message: MessageV1): void;
  close(): void;
}

type PartsV1 = Pick<ForemanParts, "core" | "log" | "identify" | "profile" | "complain" | "named"> & {
  readonly transport: TransportV1;
};

/** After STOP it goes by itself; if it does not, this is how long it is waited for. */
const LEAVING_MS = 2_000;
/** UPDATEs that may wait to be recorded: the text has the client wait for each OK. */
const WAITING_LIMIT = 64;

type State = "SV_INIT0" | "SV_INIT1" | "SV_INIT2" | "SV_LOOP2" | "SV_LOOP3" | "SV_EXIT";

export class SessionV1 implements WorkerPort {
  readonly #parts: PartsV1;
  readonly #desk: WorkerDesk;
  #state: State = "SV_INIT0";
  /** Sent and not finished, in order; true where the client had no more room then. */
  readonly #sent = new Map<HeldTask, boolean>();
  #updates: Update[] = [];
  #stopping = false;
  #leaving: NodeJS.Timeout | undefined;

  constructor(parts: PartsV1) {
    this.#parts = parts;
    this.#desk = new WorkerDesk({ core: parts.core, port: this, wake: () => this.#handOut(), missingMs: LEAVING_MS });
  }

  get joined(): boolean {
    return this.#desk.joined;
  }

  start(): void {
    this.#parts.transport.send({ type: "OK", nproc: 0 });
    this.#state = "SV_INIT1";
  }

  onMessage(message: MessageV1 | UnreadableV1): void {
    if (this.#state === "SV_EXIT") return;
    if (this.#state === "SV_INIT1") this.#onGreeting(message);
    else if (message.type === "UPDATE") this.#onUpdate(message.update);
    else if (message.type === "ERROR") this.#onError(message.code);
    else if (message.type === "OK") this.#parts.complain("an OK for which nothing was asked");
    else this.#refuse(message.type === "?" ? message.why : `${message.type} is not for this side`);
  }

  onClose(): void {
    this.#end();
    this.#desk.gone();
  }

  #end(): void {
    this.#state = "SV_EXIT";
    clearTimeout(this.#leaving);
    this.#desk.close();
  }

  #onGreeting(message: MessageV1 | UnreadableV1): void {
    if (message.type !== "OK") {
      this.#refuse(`${message.type} before OK(nproc)`);
      return;
    }
    this.#state = "SV_INIT2";
    this.#join(Math.min(message.nproc, COUNT_LIMIT)).catch((cause: unknown) => {
      const { code, message: why } = asLaboroError(cause);
      this.#parts.complain(`${code}: ${why}`);
      this.#parts.transport.close();
    });
  }

  async #join(numProcs: number): Promise<void> {
    const { identify, named, profile, transport } = this.#parts;
    const { stopping: _, ...who } = identify(undefined);
    named(who.name);
    await this.#desk.join({ ...profile, ...who });
    if (this.#state !== "SV_INIT2") return;
    transport.send({ type: "OK", nproc: numProcs });
    this.#state = "SV_LOOP2";
    this.#desk.reconcile({ numProcs, running: null });
  }

  /** One JOB a task. */
  #handOut(): void {
    // Nobody can be told to cancel.
    this.#desk.takeCancels();
    if (this.#state !== "SV_LOOP2") return;
    for (let held = this.#desk.nextJob(); held?.described !== undefined; held = this.#desk.nextJob()) {
      this.#parts.transport.send({ type: "JOB", task: held.described });
      this.#desk.started(held);
      this.#sent.set(held, this.#desk.counts.nproc === 0);
    }
  }

  #onUpdate(update: Update): void {
    if (this.#updates.length >= WAITING_LIMIT) {
      this.#parts.complain("UPDATEs without waiting for their OK");
      this.#parts.transport.close();
      return;
    }
    this.#updates.push(update);
    if (this.#state === "SV_LOOP2") this.#recordNext();
  }

  #recordNext(): void {
    const update = this.#updates.shift();
    if (update === undefined) return;
    this.#state = "SV_LOOP3";
    for (const [held, tookLast] of this.#sent) {
      if (held.jobId !== update.jobId || held.task !== update.task) continue;
      this.#sent.delete(held);
      this.#desk.room.accepted(tookLast ? 0 : 1);
    }
    this.#desk.updated(update, () => this.#recorded());
  }

  #recorded(): void {
    if (this.#state !== "SV_LOOP3") return;
    const { nproc, nrun } = this.#desk.counts;
    // By the letter a client that hears 0 leaves, whatever else it runs.
    this.#parts.transport.send({ type: "OK", nproc: nproc === 0 ? nrun : nproc });
    this.#state = "SV_LOOP2";
    if (this.#stopping && nrun === 0) this.#leave();
    this.#handOut();
    this.#recordNext();
  }

  #onError(code: number): void {
    const newest = [...this.#sent.keys()].at(-1);
    if (newest === undefined) {
      this.#parts.complain(`ERROR(${errorName(code)}), and it has nothing`);
      return;
    }
    const { jobId: job, task } = newest;
    this.#parts.log.info({ job, task }, `the client refused it: ERROR(${errorName(code)})`);
    this.#sent.delete(newest);
    this.#desk.refused(newest, this.#desk.counts.nproc + 1);
  }

  #refuse(why: string): void {
    this.#parts.complain(why);
    this.#parts.transport.send({ type: "ERROR", code: ERRORS.bad_message });
  }

  tasks(job: Job, tasks: TasksOf): void {
    this.#desk.take(job, tasks);
  }

  retract(tasks: readonly TasksOf[]): void {
    this.#desk.retract(tasks);
  }

  cancel(tasks: readonly TasksOf[]): void {
    this.#desk.cancel(tasks);
  }

  drain(): void {
    this.#desk.drain();
  }

  stop(): void {
    if (this.#stopping || this.#state === "SV_EXIT") return;
    this.#stopping = true;
    this.#desk.leave();
    const { room } = this.#desk;
    this.#parts.transport.send({ type: "STOP", count: room.slots });
    room.slots = 0;
    this.#desk.offer();
    if (this.#desk.counts.nrun === 0) this.#leave();
  }

  close(): void {
    this.#end();
    this.#parts.transport.close();
  }

  // It offers no services, so nobody calls it.
  call(): void {}
  uncall(): void {}

  #leave(): void {
    this.#leaving ??= setTimeout(() => this.#parts.transport.close(), LEAVING_MS);
  }
}
