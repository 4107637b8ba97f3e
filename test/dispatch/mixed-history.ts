/** Random histories of one broker: joins, losses, results in time and late, requests, cancels, holds, full queues, deadlines. */
import { expect } from "vitest";
import { type RequestId, SessionId, WorkerId } from "../../src/model/ids.js";
import type { Step } from "./mixed-steps.js";
import { Workbench, type WorkerWish } from "./workbench.js";

/** More than any job is submitted with or edited to: such a task waits for no other. */
const ABOVE_ALL = 10;

export class MixedHistory {
  readonly broker: Workbench;
  readonly asked: RequestId[] = [];
  readonly #wishes: readonly WorkerWish[];
  readonly #answered = new Map<number, number>();
  /** Requests at workers, as those see it. */
  readonly #atWorkers = new Map<number, string>();
  #heard = 0;
  #sessions = 0;
  #lastEnds: [string, string, number][] = [];

  constructor(wishes: readonly WorkerWish[], standing = false) {
    const bounds = { maxWaitingRequests: 3, leaseBlock: 6 };
    this.broker = new Workbench({ ...bounds, retryBackoffMs: 10, maxRetryBackoffMs: 20, standing });
    this.#wishes = wishes;
  }

  answers(request: number): number {
    return this.#answered.get(request) ?? 0;
  }

  take(step: Step): void {
    this.#act(step);
    this.#hear();
  }

  #act(step: Step): void {
    const { broker } = this;
    const name = "at" in step ? `w${step.at % this.#wishes.length}` : "";
    const known = broker.state.workers.get(WorkerId(name));
    switch (step.kind) {
      case "submit": {
        const { maxRunning, halt, service, delay, ...rest } = step.job;
        if (broker.world.jobs.size >= 6) return;
        broker.submit({
          ...rest,
          ...delay,
          ...(maxRunning === undefined ? {} : { maxRunning }),
          ...(halt === undefined ? {} : { halt }),
          ...(service === undefined ? {} : { service }),
        });
        return;
      }
      case "single":
        if (broker.world.jobs.size < 9) broker.submit({ priority: ABOVE_ALL });
        return;
      case "join":
        this.#join(name, step.again);
        return;
      case "away":
      case "leave":
      case "drain":
        if (known === undefined) return;
        if (step.kind !== "drain") this.#loseCalls(name);
        if (step.kind === "away") broker.away(name, step.at % 2 === 0);
        else broker[step.kind](name);
        return;
      case "finish": {
        if (known?.connected !== true) return;
        const tasks = broker.at(name).slice(0, 1 + step.many);
        this.#lastEnds = tasks.map((task) => [name, task, broker.attempt(name, task)]);
        broker.finish(name, tasks, { code: step.code });
        return;
      }
      case "late":
        // The same ends once more, from whoever.
        for (const [, task, attempt] of this.#lastEnds) {
          const [of, index] = task.split(".").map(Number);
          const told = { job: of as never, index: index ?? 0, attempt, code: 0, started: 0, ended: 1, outputBytes: 0 };
          if (broker.at(name).includes(task) && broker.attempt(name, task) === attempt) continue;
          expect(broker.report(name, [told])).toBe(1);
        }
        return;
      case "start":
        if (known?.connected === true) broker.start(name, ...broker.at(name).slice(0, 2));
        return;
      case "refuse":
        if (known?.connected === true) broker.giveBack(name, ...broker.at(name).slice(-1));
        return;
      case "obey":
        this.#obey(name);
        return;
      case "request": {
        const { service, retry, within } = step;
        this.asked.push(broker.request(service, { retry, deadline: broker.now + within }) as RequestId);
        return;
      }
      case "reply": {
        const at = [...this.#atWorkers][step.at % Math.max(1, this.#atWorkers.size)];
        if (at !== undefined) this.#reply(...at);
        return;
      }
      case "forget": {
        const request = this.asked[step.at % Math.max(1, this.asked.length)];
        if (request === undefined) return;
        if (this.answers(request) === 0) this.#answered.set(request, 1);
        broker.forget(request);
        return;
      }
      case "cancel": {
        const of = 1 + (step.at % 6);
        if (broker.world.jobs.has(of as never)) broker.cancel(of, step.first, step.first + step.length);
        return;
      }
      case "slots":
        broker.slots(name, step.slots);
        return;
      case "forgive":
        broker.forgive(name);
        return;
      case "reclaim":
        if (known?.connected === true && !broker.at(name).includes(`${1 + (step.many % 6)}.${step.index}`))
          broker.reclaim(name, `${1 + (step.many % 6)}.${step.index}`);
        return;
      case "undrain":
        broker.undrain(name);
        return;
      case "edit": {
        const id = 1 + (step.at % 6);
        if (broker.world.jobs.has(id as never)) broker.edit(id, step.changes);
        return;
      }
      case "hold":
        broker.hold(1 + (step.at % 6), step.held);
        return;
      case "pass":
        broker.pass(step.ms);
        return;
      case "clock":
        broker.setClock(step.ahead);
        return;
      case "halt":
        broker.halt();
        return;
      case "resume":
        broker.resume();
    }
  }

  #join(name: string, again: boolean): void {
    const { broker } = this;
    this.#loseCalls(name);
    const wish = this.#wishes[Number(name.slice(1))] ?? {};
    if (again) broker.held.delete(name);
    const held = broker.at(name).map((task) => {
      const [of, index] = task.split(".").map(Number);
      const at = index ?? 0;
      return { job: of as never, first: at, last: at, attempt: broker.attempt(name, task), state: "running" as const };
    });
    // What the worker had is in its list; what it is handed in the same step comes on top.
    const before = new Map(broker.held.get(name));
    const session = again
      ? ++this.#sessions
      : (broker.state.workers.get(WorkerId(name))?.profile.session ?? ++this.#sessions);
    const { drop } = broker.join(name, { ...wish, session: SessionId(String(session)) }, held);
    for (const { job: of, first, attempt } of drop) {
      const task = `${of}.${first}`;
      if (before.get(task) === attempt && broker.attempt(name, task) === attempt) broker.held.get(name)?.delete(task);
    }
  }

  /** Give back what was asked for, as far as it is there. */
  #obey(name: string): void {
    const { broker } = this;
    if (broker.state.workers.get(WorkerId(name))?.connected !== true) return;
    const { sends } = broker;
    for (let at = 0; at < sends.length; at++) {
      const send = sends[at];
      if (at > 5_000) throw new Error("what is given back is handed out and asked back without end");
      if (send === undefined || send.kind === "tasks" || send.worker !== name) continue;
      const asked = send.tasks.flatMap(({ job: of, first, last, attempt }) =>
        broker.at(name).filter((task) => {
          const [held, index] = task.split(".").map(Number);
          const at = index ?? -1;
          return held === of && at >= first && at <= last && broker.attempt(name, task) === attempt;
        }),
      );
      if (asked.length > 0) broker.giveBack(name, ...asked);
    }
  }

  #reply(request: number, name: string): void {
    this.#atWorkers.delete(request);
    if (this.broker.reply(name, request)) this.#answered.set(request, this.answers(request) + 1);
  }

  #loseCalls(name: string): void {
    for (const [request, worker] of this.#atWorkers) if (worker === name) this.#atWorkers.delete(request);
  }

  #hear(): void {
    const { calls } = this.broker;
    for (; this.#heard < calls.length; this.#heard++) {
      const call = calls[this.#heard];
      if (call?.kind === "call") this.#atWorkers.set(call.request, call.worker);
      else if (call?.kind === "refuse") this.#answered.set(call.request, this.answers(call.request) + 1);
    }
  }

  /** Let everything come to its end. What no worker here could ever do is cancelled. */
  settle(): void {
    const { broker } = this;
    this.take({ kind: "resume" });
    this.take({ kind: "clock", ahead: 0 });
    this.take({ kind: "pass", ms: 100_000 });
    for (const { job: of } of [...broker.world.jobs.values()]) {
      if (of.ended === undefined) broker.hold(of.id, false);
    }
    for (let round = 0; round < 200; round++) {
      for (let at = 0; at < this.#wishes.length; at++) {
        const name = `w${at}`;
        const known = broker.state.workers.get(WorkerId(name));
        if (known?.connected !== true || known.draining) this.take({ kind: "join", at, again: true });
        else this.take({ kind: "slots", at, slots: known.mostSlots });
        this.take({ kind: "finish", at, many: 99, code: 0 });
      }
      for (const [request, name] of [...this.#atWorkers]) {
        this.#reply(request, name);
        this.#hear();
      }
      this.take({ kind: "pass", ms: 20 });
      const open = [...broker.state.jobs.values()];
      const answered = this.#atWorkers.size === 0 && this.asked.every((id) => this.answers(id) > 0);
      if (open.length === 0 && answered) return;
      for (const { id, signature } of open) if (signature.capable.size === 0) broker.cancel(id);
      this.#hear();
      if (open.length === 0) this.take({ kind: "pass", ms: 200_000 });
    }
    throw new Error(`work is left that nobody does: ${[...broker.state.jobs.keys()].join(", ")}`);
  }
}

/** Take a step; where it brought one piece of work and somebody had room, see that the right one got it. */
export function leastRecentlyUsedIsChosen(mixed: MixedHistory, step: Step): void {
  const { broker } = mixed;
  const forTask = step.kind === "single" && broker.world.jobs.size < 9 && broker.state.halted === undefined;
  if (step.kind !== "request" && !forTask) {
    mixed.take(step);
    return;
  }
  const fitting = [...broker.state.workers.values()]
    .filter(({ connected, draining }) => connected && !draining)
    .filter(({ profile }) => step.kind !== "request" || profile.services.includes(step.service))
    .filter(({ free, profile }) => (free.slots ?? 0) - (step.kind === "request" ? 0 : profile.reserveRequests) >= 1)
    .map(({ profile }) => profile.name);
  const [expected] = fitting.sort((a, b) => lastUse(broker, a) - lastUse(broker, b));
  const used = broker.log.length;
  mixed.take(step);
  const [first] = broker.log.slice(used);
  expect(first?.worker).toBe(expected);
}

/** The place in the log of a worker's last use; before all of them, in order of joining, where there is none. */
function lastUse(broker: Workbench, name: string): number {
  const joined = broker.joined.get(name) ?? { place: 0, order: 0 };
  const last = broker.log.findLastIndex(({ worker }, i) => i >= joined.place && worker === name);
  return last < 0 ? joined.order - 1_000_000 : last;
}
