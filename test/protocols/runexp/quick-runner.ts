/** A runner without processes: what a job would say is said for it, at once. For batches of thousands. */
import { connect, type Socket } from "node:net";
import { displayName, type Status } from "../../../src/protocols/runexp/messages.js";
import { ClientStateMachine, type Job } from "../../../src/protocols/runexp/runner/client-state-machine.js";
import { Threads } from "../../../src/protocols/runexp/runner/threads.js";

interface Result {
  readonly name: string;
  readonly text: Buffer;
  readonly status: Status;
}

export interface QuickRunnerOptions {
  readonly port: number;
  readonly host: string;
  readonly threads: number;
  /** Called for each job before its result is there; what it throws away is never run. */
  readonly onJob?: (job: Job, runner: QuickRunner) => void;
}

export class QuickRunner {
  readonly ended: Promise<void>;
  taken = 0;
  connections = 0;
  readonly #options: QuickRunnerOptions;
  readonly #threads: Threads<Result>;
  #socket: Socket | undefined;
  #side: ClientStateMachine | undefined;
  #over = false;
  #end: () => void = () => {};

  constructor(options: QuickRunnerOptions) {
    this.#options = options;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#threads = new Threads(options.threads, {
      mayRequestJob: () => true,
      requestJob: () => this.#side?.requestJob(),
      deliver: ({ name, status, text }) => this.#side?.deliver(name, status, text.length),
      start: (thread, job) => this.#start(thread, job),
      leave: () => {
        this.#over = true;
        this.#side?.leave();
        this.#socket?.end();
      },
      startHoldTimer: (thread) => setTimeout(() => this.#threads.holdExpired(thread), 20),
    });
    this.#connect();
  }

  /** For good, without a word. */
  kill(): void {
    this.#over = true;
    this.#socket?.destroy();
  }

  /** The connection is gone; the runner comes again, with what it has. */
  cut(): void {
    this.#socket?.destroy();
  }

  say(garbage: string | Buffer): void {
    this.#socket?.write(garbage);
  }

  #connect(): void {
    this.connections++;
    const side = new ClientStateMachine("__defaulte__", {
      write: (bytes) => void this.#socket?.write(bytes),
      received: () => {},
      sent: () => {},
      joined: () => this.#threads.connected(),
      job: (job) => this.#threads.job(job),
      noJob: (answer) => this.#threads.noJob(answer),
      outputWanted: () => side.sendOutput(this.#threads.undelivered[0]?.text ?? Buffer.alloc(0), true),
      delivered: () => this.#threads.delivered(),
      refused: () => this.kill(),
      protocolError: () => this.cut(),
      startQuietTimer: () => setTimeout(() => side.quietElapsed(), 20),
    });
    const socket = connect({ port: this.#options.port, host: "127.0.0.1" });
    this.#side = side;
    this.#socket = socket;
    socket.once("connect", () => side.sendHello(this.#options.host));
    socket.on("data", (bytes) => side.push(bytes));
    socket.on("error", () => {});
    socket.once("close", () => {
      this.#threads.disconnected();
      if (this.#over) this.#end();
      else setTimeout(() => this.#connect(), 10);
    });
  }

  #start(thread: number, job: Job): void {
    this.taken++;
    this.#options.onJob?.(job, this);
    const status = job.content.includes("fail") ? "failure" : "success";
    const text = Buffer.from(`runexp summary: ${status}\n\n[${this.#options.host}] ${displayName(job.name)}\n`);
    setImmediate(() => this.#threads.finished(thread, { name: job.name, text, status }));
  }
}
