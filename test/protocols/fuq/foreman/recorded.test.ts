/**
 * The recorded side of an original worker, replayed against our foreman: its payloads byte for byte, its numbers counted on as it counts
 * them. What our foreman says is held against what the original said, but for the differences that stand beside the recording.
 */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { TRUE } from "../../../support/recipes.js";
import { until } from "../../../support/wait.js";
import { nodeNamed, openWeb, openYard, webWorker, type Yard } from "./kit.js";
import { CANCEL, counts, HELLO, JOB, type LiteralWorker, OK, STOP, UPDATE } from "./literal-worker.js";

type Step =
  | { readonly dir: "C->S" | "S->C"; readonly hex: string }
  | { readonly dir: "C->S" | "S->C"; readonly close: string }
  | {
      readonly do: string;
      readonly name?: string;
      readonly count?: number;
      readonly command?: string;
      readonly job?: number;
    };

interface Recording {
  readonly name: string;
  readonly differences: readonly string[];
  readonly steps: readonly Step[];
}

const { conversations } = JSON.parse(
  readFileSync(new URL("../../../fixtures/fuq/recorded-worker.json", import.meta.url), "utf8"),
) as { conversations: readonly Recording[] };

const DIR = "/srv/demo/x/jobs";
const TASKS_OF_TWO = 2;

/** The worker's end: what it has sent and received decides its next number. */
class Replay {
  #counter = 0;
  /** STOP was heard early: from then on the original counts less. */
  #stopped = 0;

  constructor(
    public yard: Yard,
    public worker: LiteralWorker,
  ) {}

  async #expect(type: number) {
    const frame = await this.worker.expect(type);
    this.#counter = Math.max(this.#counter, (frame.seq >>> 1) + 1);
    return frame;
  }

  /** A recorded request, with the number that it has here; the recorded OK to it. One that crossed a JOB was sent before it came. */
  async ask(bytes: Buffer, recorded: Buffer, crossed: number | undefined): Promise<void> {
    const seq = crossed === undefined ? this.#counter++ * 2 : crossed - 1;
    const renumbered = Buffer.from(bytes);
    renumbered.writeUInt32LE(seq, 4);
    this.worker.raw(renumbered);
    const ok = await this.#expect(OK);
    expect(ok.seq).toBe(seq);
    const [nproc, nrun] = [recorded.readUInt16LE(14), recorded.readUInt16LE(12)];
    expect(counts(ok)).toBe(`${Math.max(0, nproc - this.#stopped)}|${nrun}`);
  }

  /** The tasks of a recorded JOB come one by one. Gives what answers each. */
  async job(recorded: Buffer): Promise<number[]> {
    const payload = recorded.subarray(16);
    const tasks = payload.readUInt8(0) & 0x0f;
    expect(tasks).toBeLessThanOrEqual(TASKS_OF_TWO);
    let rest = payload.subarray(1);
    const numbers: number[] = [];
    for (let i = 0; i < tasks; i++) {
      const { seq, arg0, rest: unpacked } = await this.#expect(JOB);
      expect(unpacked).toHaveLength(1);
      // One task is as many bytes as came, but for the head of the list.
      const task = rest.subarray(0, arg0 - 1);
      expect(this.worker.lastPayload.subarray(1).toString("hex")).toBe(task.toString("hex"));
      rest = rest.subarray(arg0 - 1);
      numbers.push(seq);
      if (i + 1 < tasks) this.worker.ok(seq, tasks - i - 1, i + 1);
    }
    expect(rest).toHaveLength(0);
    return numbers;
  }

  async cancel(recorded: Buffer): Promise<number> {
    const { seq } = await this.#expect(CANCEL);
    expect(this.worker.lastPayload.toString("hex")).toBe(recorded.subarray(16).toString("hex"));
    return seq;
  }

  async stop(recorded: Buffer): Promise<number> {
    const { seq, arg0 } = await this.#expect(STOP);
    expect(arg0).toBe(recorded.readUInt32LE(12));
    return seq;
  }

  /** STOP came before the recording has it. */
  async stopEarly(): Promise<void> {
    const { seq, arg0 } = await this.#expect(STOP);
    expect(arg0).toBe(2);
    this.worker.ok(seq, 0, 2);
    this.#stopped = 1;
  }

  reply(recorded: Buffer, seq: number): void {
    const bytes = Buffer.from(recorded);
    bytes.writeUInt32LE(seq, 4);
    this.worker.raw(bytes);
  }
}

const typeOf = (bytes: Buffer): number => bytes.readUInt8(2);

it.each(conversations.map((one) => [one.name, one] as const))("%s", async (_name, { steps }) => {
  const node = nodeNamed("vm:1:1");
  const yard = await openYard();
  let url = await openWeb(yard, node);
  const replay = new Replay(yard, await webWorker(url));
  const bytesAt = (at: number): Buffer => {
    const step = steps[at];
    return Buffer.from(step !== undefined && "hex" in step ? step.hex : "", "hex");
  };
  /** The recorded OK to a request: the next of that number. */
  const okTo = (at: number): Buffer => {
    const seq = bytesAt(at).readUInt32LE(4);
    const found = steps.findIndex((step, i) => {
      if (i <= at || !("hex" in step) || step.dir !== "S->C") return false;
      return typeOf(bytesAt(i)) === OK && bytesAt(i).readUInt32LE(4) === seq;
    });
    return bytesAt(found);
  };
  const busyStop = steps.some((step) => "close" in step && step.dir === "S->C");
  let owed: number | undefined;
  let early = false;
  for (const [at, step] of steps.entries()) {
    const bytes = bytesAt(at);
    if ("do" in step) {
      if (step.do === "submit") {
        await replay.yard.client.submit({
          name: step.name ?? "",
          count: step.count ?? 0,
          recipe: {
            kind: "command",
            argv: [step.command ?? "", "{#}"],
            placeholders: true,
            dir: DIR,
            log: `${DIR}/${step.name}_{#}.log`,
          },
        });
      } else if (step.do === "earlier jobs") {
        for (let i = 0; i < (step.count ?? 0); i++) {
          const job = await replay.yard.client.submit({ recipe: TRUE, held: true });
          await replay.yard.client.ask("cancel", { job: job.id });
        }
      } else if (step.do === "stop") {
        if (!early) await replay.yard.client.stopWorker(node.id);
      } else if (step.do === "cut") {
        replay.worker.cut();
        replay.worker = await webWorker(url);
      } else if (step.do === "restart") {
        await replay.yard.broker.stop();
        replay.yard = await openYard({ dir: `${yard.dir}/data` });
        url = await openWeb(replay.yard, node);
        replay.worker = await webWorker(url);
      } else if (step.do === "hold" || step.do === "release" || step.do === "cancel") {
        await replay.yard.client.ask(step.do, { job: step.job ?? 0 });
      }
    } else if ("close" in step) {
      if (step.dir === "S->C") expect(await until("it is closed", () => replay.worker.closed)).toBe(step.close);
      else replay.worker.cut();
    } else if (step.dir === "C->S") {
      if (typeOf(bytes) !== HELLO && typeOf(bytes) !== UPDATE) {
        if (owed !== undefined) replay.reply(bytes, owed);
        owed = undefined;
        continue;
      }
      if (busyStop && typeOf(bytes) === UPDATE && !early) {
        early = true;
        await replay.yard.client.stopWorker(node.id);
        await replay.stopEarly();
      }
      await replay.ask(bytes, okTo(at), owed);
    } else if (typeOf(bytes) === JOB) owed = (await replay.job(bytes)).at(-1);
    else if (typeOf(bytes) === CANCEL) owed = await replay.cancel(bytes);
    else if (typeOf(bytes) === STOP && !early) owed = await replay.stop(bytes);
  }
});
