/**
 * The worker's side of the link and the broker's session, with a connection between them that delivers one message at a time and can be cut
 * between any two. Everything but the wire, the disk of the broker and the task's program is real. Nothing depends on time: a step is one
 * event, and the order of events is given.
 */
import { EventEmitter } from "node:events";
import * as fs from "node:fs";
import { join as joinPath } from "node:path";
import type { WebSocket } from "ws";
import { SILENT } from "../../src/base/log.js";
import { Core } from "../../src/broker/core.js";
import { submit } from "../../src/broker/operations/jobs.js";
import type { OperationContext } from "../../src/broker/operations/operation.js";
import { DEFAULT_SETTINGS } from "../../src/dispatch/index.js";
import { JobId, SessionId } from "../../src/model/ids.js";
import type { Store, Write } from "../../src/model/store.js";
import { WorkerSession } from "../../src/protocols/laboro/broker/worker-session.js";
import { decodeFrame, encodeFrame } from "../../src/protocols/laboro/codec.js";
import { Connection } from "../../src/protocols/laboro/connection.js";
import type { FromWorker, LinkMessage, ToWorker } from "../../src/protocols/laboro/messages.js";
import { newWorkerSecret, workerIdOf } from "../../src/protocols/laboro/worker-identity.js";
import { Capacity } from "../../src/worker/capacity.js";
import { HandlerMessages } from "../../src/worker/handler-messages.js";
import { JobFiles } from "../../src/worker/job-files.js";
import type { Slots } from "../../src/worker/processes/index.js";
import { Services } from "../../src/worker/services.js";
import { ResultSpool } from "../../src/worker/spool/result-spool.js";
import { TaskFolders } from "../../src/worker/task-folders.js";
import { WorkerTasks } from "../../src/worker/worker-tasks.js";
import { ModelWorld } from "../store/model-store.js";
import { join } from "../support/intruder.js";

const SECRET = newWorkerSecret();

/** A message reaches the broker or the worker, a batch reaches the broker's disk, or a task ends. */
export type Event = "up" | "down" | "commit" | "end";

/**
 * cut: both ends see that the connection is closed. half-open: only the worker does. broker killed: batches that are not on disk are lost.
 * worker killed: what it ran is lost; its results are on disk (spooled) or not.
 */
export type Fault = "cut" | "half-open" | "broker killed" | "worker killed, spooled" | "worker killed, not spooled";

export const WINDOW = 2_048;
const SERVICE = "texts";
const JOB = JobId(1);

/** A WebSocket, as far as Connection uses it. */
class Socket extends EventEmitter {
  readonly bufferedAmount = 0;
  readonly #onFrame: (frame: Uint8Array) => void;

  constructor(onFrame: (frame: Uint8Array) => void) {
    super();
    this.#onFrame = onFrame;
  }

  send(frame: Uint8Array): void {
    this.#onFrame(frame);
  }

  close(): void {}
  terminate(): void {}

  deliver(message: LinkMessage): void {
    this.emit("message", Buffer.from(encodeFrame([message])), true);
  }

  asWebSocket(): WebSocket {
    return this as unknown as WebSocket;
  }
}

interface Ends {
  readonly broker: Socket;
  readonly worker: Socket;
}

export class CuttableLink {
  readonly #world: ModelWorld;
  readonly #queues: Record<Event, (() => void)[]> = { up: [], down: [], commit: [], end: [] };
  readonly #dir: string;
  readonly #texts: readonly string[];
  readonly #runs = new Map<string, number>();
  #core: Core;
  #tasks: WorkerTasks;
  #spool: ResultSpool;
  #session = 0;
  #ends: Ends | undefined;

  private constructor(dir: string, texts: readonly string[], world: ModelWorld, core: Core) {
    this.#dir = dir;
    this.#texts = texts;
    this.#world = world;
    this.#core = core;
    fs.mkdirSync(this.#path("out"), { recursive: true });
    [this.#tasks, this.#spool] = this.#startWorker();
  }

  /** A task for each text, which is its output. */
  static async open(dir: string, texts: readonly string[]): Promise<CuttableLink> {
    const world = new ModelWorld({ shared: false });
    const core = await Core.open(world.store(), DEFAULT_SETTINGS, SILENT, fail);
    const entries = texts.map((_, index) => String(index));
    const recipe = { kind: "call", service: SERVICE } as const;
    await submit.perform(core, submit.input.read({ recipe, entries }, ""), {} as OperationContext);
    await core.stop();
    const link = new CuttableLink(dir, texts, world, core);
    await link.#startBroker();
    link.#connect();
    return link;
  }

  /** Lets the next event happen, the first kind of `order` that has one. False if there is none. */
  async step(order: readonly Event[]): Promise<boolean> {
    await settled();
    const kind = order.find((one) => this.#queues[one].length > 0);
    if (kind === undefined) return false;
    this.#queues[kind].shift()?.();
    return true;
  }

  async fail(fault: Fault): Promise<void> {
    await settled();
    const ends = this.#ends;
    for (const kind of ["up", "down"] as const) this.#queues[kind] = [];
    ends?.worker.emit("close", 1006, Buffer.alloc(0));
    if (fault !== "half-open") ends?.broker.emit("close", 1006, Buffer.alloc(0));
    if (fault === "broker killed") {
      void this.#core.stop();
      this.#queues.commit = [];
      await this.#startBroker();
    } else if (fault !== "cut" && fault !== "half-open") {
      this.#queues.end = [];
      await this.#tasks.close();
      await this.#spool.close();
      if (fault === "worker killed, not spooled") fs.rmSync(this.#path("results"), { force: true });
      [this.#tasks, this.#spool] = this.#startWorker();
    }
    this.#connect();
  }

  /** What differs from each task recorded once with the bytes that it wrote. */
  async faults(): Promise<string[]> {
    const job = this.#world.jobs.get(JOB);
    const found: string[] = [];
    for (const [index, text] of this.#texts.entries()) {
      const result = job?.results.get(index);
      if (result === undefined) found.push(`task ${index} has no result`);
      else if (result.state !== "succeeded") found.push(`task ${index}: ${result.state}`);
      else {
        const page = this.#world.output.read(JOB, index, { attempt: result.attempt, from: 0, limit: 1e9 });
        const stored = page.pieces.map(({ offset, bytes }) => `${offset}:${Buffer.from(bytes)}`).join();
        if (stored !== (text === "" ? "" : `0:${text}`))
          found.push(`task ${index} has the output ${JSON.stringify(stored)}`);
      }
    }
    if (job?.earlier.length !== 0) found.push("an attempt was recorded besides the last");
    this.#world.check();
    return found;
  }

  /** Tasks that ran more often than once. */
  get runAgain(): number {
    return [...this.#runs.values()].filter((count) => count > 1).length;
  }

  async close(): Promise<void> {
    await this.#core.stop();
    await this.#tasks.close();
    await this.#spool.close();
  }

  #path(name: string): string {
    return joinPath(this.#dir, name);
  }

  async #startBroker(): Promise<void> {
    this.#core = await Core.open(this.#gated(this.#world.store()), DEFAULT_SETTINGS, SILENT, fail);
  }

  /** A batch is committed when its event is taken. */
  #gated(store: Store): Store {
    const queue = this.#queues;
    const commit = (writes: readonly Write[], now: number): ReturnType<Store["commit"]> =>
      new Promise((resolve) => queue.commit.push(() => resolve(store.commit(writes, now))));
    return new Proxy(store, {
      get: (target, name) => {
        if (name === "commit") return commit;
        const value: unknown = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  #startWorker(): [WorkerTasks, ResultSpool] {
    const { spool, results } = ResultSpool.load(this.#path("results"));
    const services = new Services();
    const handler = (body: Buffer): Promise<string | undefined> => {
      const entry = body.toString();
      this.#runs.set(entry, (this.#runs.get(entry) ?? 0) + 1);
      return new Promise((resolve) => this.#queues.end.push(() => resolve(this.#texts[Number(entry)])));
    };
    services.set(SERVICE, { handler, returnsValue: false });
    this.#session++;
    const tasks = new WorkerTasks(
      {
        directory: {
          id: workerIdOf(SECRET),
          secret: SECRET,
          resultsPath: this.#path("results"),
          brokersPath: this.#path("brokers"),
          storePath: this.#path("store"),
          outputDirectory: this.#path("out"),
          release: () => {},
        },
        spool,
        slots: { slots: [] } as unknown as Slots,
        files: new JobFiles(this.#path("files")),
        folders: new TaskFolders(this.#path("folders")),
        services,
        capacity: new Capacity({ slots: this.#texts.length }),
        log: SILENT,
        now: () => 1,
      },
      new HandlerMessages(),
      0,
      results,
    );
    return [tasks, spool];
  }

  #connect(): void {
    const ends: Ends = {
      worker: new Socket((frame) => this.#queue("up", ends, decodeFrame(frame, "worker"))),
      broker: new Socket((frame) => this.#queue("down", ends, decodeFrame(frame, "brokerToWorker"))),
    };
    this.#ends = ends;
    this.#acceptAt(ends.broker);
    const tasks = this.#tasks;
    const link = new Connection<ToWorker, FromWorker>(
      ends.worker.asWebSocket(),
      { from: "brokerToWorker" },
      {
        onMessages: (batch) => {
          for (const message of batch) receive(tasks, message, (sent) => link.send(sent));
          tasks.pump();
        },
        onClose: () => tasks.pause(),
      },
    );
    const pool = "default";
    const session = SessionId(String(this.#session));
    link.send(
      join({
        ...{ secret: SECRET, session, pool, services: [SERVICE], total: { slots: this.#texts.length } },
        held: tasks.held(),
      }),
    );
  }

  #acceptAt(socket: Socket): void {
    const options = { broker: "broker", heartbeatMs: 86_400_000, outputWindow: WINDOW };
    const connection = new Connection<FromWorker, ToWorker>(
      socket.asWebSocket(),
      { from: "worker" },
      {
        onMessages: ([first]) => {
          if (first?.type !== "JOIN") throw new Error(`${first?.type} came before JOIN`);
          const session: WorkerSession = new WorkerSession(
            this.#core,
            connection.handOver({
              onMessages: (batch) => session.onMessages(batch),
              onClose: (reason) => session.onClose(reason),
            }),
            first,
            options,
          );
        },
        onClose: () => {},
      },
    );
  }

  /** What is sent into a connection that was cut goes nowhere. */
  #queue(kind: "up" | "down", ends: Ends, messages: readonly LinkMessage[]): void {
    if (ends !== this.#ends) return;
    const receiver = kind === "up" ? ends.broker : ends.worker;
    for (const message of messages) this.#queues[kind].push(() => receiver.deliver(message));
  }
}

/** As the agent does. */
function receive(tasks: WorkerTasks, message: ToWorker, send: (message: FromWorker) => void): void {
  if (message.type === "WELCOME") tasks.resume(message, send);
  else if (message.type === "RECIPE") tasks.addRecipe(message);
  else if (message.type === "TASKS") tasks.receive(message);
  else if (message.type === "ACK") tasks.acknowledge(message.seq);
  else if (message.type === "CREDIT") tasks.credit(message.bytes);
  else throw new Error(`${message.type} was not expected`);
}

/** All that follows from the last event without another one has happened. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function fail(cause: Error): never {
  throw cause;
}
