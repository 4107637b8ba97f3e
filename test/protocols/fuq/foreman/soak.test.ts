/**
 * Many short tasks through one foreman and four workers whose connections are cut at random: each task has one result, and was run once.
 */
import { expect, it } from "vitest";
import { WebSocket } from "ws";
import { decodeMessage, encodeMessage } from "../../../../src/protocols/fuq/codec.js";
import type { Message, Task, Update } from "../../../../src/protocols/fuq/messages.js";
import { type Effect, ProtocolStateMachine } from "../../../../src/protocols/fuq/protocol-state-machine.js";
import { SeededRandom } from "../../../support/random.js";
import { scaled } from "../../../support/scale.js";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { atEnd, nodeNamed, numbered, openWeb, openYard } from "./kit.js";

const TASKS = scaled(1_000);
const WORKERS = 4;
const SLOTS = 8;
const CUTS = scaled(40);

/** A worker without processes: it counts what it would have run. */
class Worker {
  readonly runs: Map<number, number>;
  readonly #url: string;
  readonly #random: SeededRandom;
  readonly #held = new Map<number, { readonly task: Task; update?: Update }>();
  #socket: WebSocket | undefined;
  #talk: ProtocolStateMachine<Update | undefined> | undefined;
  #told = new Set<Update>();
  #stopped = false;
  /** How often it was given more than it has slots. */
  overfull = 0;

  constructor(url: string, runs: Map<number, number>, random: SeededRandom) {
    this.#url = url;
    this.runs = runs;
    this.#random = random;
    this.#connect();
  }

  cut(): void {
    this.#socket?.terminate();
  }

  stop(): void {
    this.#stopped = true;
    this.#socket?.terminate();
  }

  #connect(): void {
    const socket = new WebSocket(this.#url);
    const talk = new ProtocolStateMachine<Update | undefined>({ side: "worker", greeting: "worker" });
    this.#socket = socket;
    socket.on("error", () => {});
    socket.once("open", () => {
      this.#talk = talk;
      this.#told = new Set();
      this.#carryOut(talk.start());
    });
    socket.on("message", (data) => this.#carryOut(talk.receive(decodeMessage(data as Buffer) as Message)));
    socket.once("close", () => {
      this.#talk = undefined;
      if (!this.#stopped) setImmediate(() => this.#connect());
    });
  }

  #carryOut(effects: readonly Effect<Update | undefined>[]): void {
    const talk = this.#talk;
    for (const effect of effects) {
      if (talk === undefined || talk !== this.#talk) return;
      if (effect.kind === "send") this.#socket?.send(encodeMessage(effect.message));
      else if (effect.kind === "begin") {
        const running = Array.from(this.#held.values(), ({ task }) => task);
        this.#carryOut(
          talk.request({ type: "HELLO", hello: { numProcs: SLOTS - running.length, running } }, undefined),
        );
      } else if (effect.kind === "reply") {
        if (effect.tag === undefined) this.#tell();
        else this.#held.delete(effect.tag.task);
      } else if (effect.kind === "request") {
        const { request } = effect;
        if (request.type === "JOB") for (const task of request.tasks) this.#run(task);
        const nrun = this.#held.size;
        this.#carryOut(talk.answer(request.seq, { type: "OK", nproc: SLOTS - nrun, nrun }));
      } else if ("why" in effect) throw new Error(effect.why);
    }
  }

  #run(task: Task): void {
    const held: { readonly task: Task; update?: Update } = { task };
    this.#held.set(task.task, held);
    if (this.#held.size > SLOTS) this.overfull++;
    this.runs.set(task.task, (this.runs.get(task.task) ?? 0) + 1);
    setTimeout(
      () => {
        held.update = { jobId: task.job.jobId, task: task.task, success: true, status: "done", newJob: null };
        this.#tell();
      },
      this.#random.between(0, 3),
    );
  }

  /** What has ended and was not told on this connection. */
  #tell(): void {
    const state = this.#talk?.state;
    if (this.#talk === undefined || state === "CL_INIT0" || state === "CL_INIT1") return;
    for (const { update } of this.#held.values()) {
      if (update === undefined || this.#told.has(update)) continue;
      this.#told.add(update);
      this.#carryOut(this.#talk.request({ type: "UPDATE", update }, update));
    }
  }
}

it(`${TASKS} tasks, four workers, cuts at random: ${TASKS} results, each once`, async () => {
  const yard = await openYard();
  const random = new SeededRandom();
  const runs = new Map<number, number>();
  const job = await yard.client.submit(numbered(TASKS));
  const workers: Worker[] = [];
  for (let i = 0; i < WORKERS; i++) {
    const worker = new Worker(await openWeb(yard, nodeNamed(`vm:${i}:1`), { missingMs: 100 }), runs, random);
    workers.push(worker);
    atEnd(() => worker.stop());
  }
  const finished = async (): Promise<number> => (await job.info()).counters.succeeded;
  // At each of these counts one of them is cut off, wherever it is with its tasks.
  for (const at of random.spread(CUTS, TASKS)) {
    await until(`${at} are done (seed ${random.seed})`, async () => (await finished()) >= at, 120_000);
    workers[random.between(0, WORKERS - 1)]?.cut();
  }
  expect(await job.wait()).toBe("succeeded");
  const results = await resultsOf(job);
  const lost = TASKS - new Set(results.map(({ index }) => index)).size;
  const twice = [...runs.values()].filter((count) => count > 1).length;
  const overfull = workers.reduce((sum, worker) => sum + worker.overfull, 0);
  console.log(`fuq soak: ${TASKS} tasks, ${CUTS} cuts, lost: ${lost}, run twice: ${twice} (seed ${random.seed})`);
  expect({ results: results.length, lost, twice, overfull }).toEqual({
    results: TASKS,
    lost: 0,
    twice: 0,
    overfull: 0,
  });
  expect(yard.complaints).toEqual([]);
}, 600_000);
