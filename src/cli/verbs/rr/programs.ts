/** `laboro rr server`: a broker with a round-robin listener, and a console with its worker table. */
import { rmSync } from "node:fs";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { makeTemporaryFolder } from "../../../base/files/temporary.js";
import { type Log, PeerErrors } from "../../../base/log.js";
import { TracedConnections } from "../../../base/traced-connections.js";
import { checkListeners, type ListenerSettings } from "../../../broker/listeners/listener.js";
import { openRoundRobinListener } from "../../../protocols/round-robin/broker/listener.js";
import type { WorkerRow } from "../../../protocols/round-robin/broker/worker-table.js";
import { INCREMENT, isArgument, type Message, messageName } from "../../../protocols/round-robin/frames.js";
import { testDataError } from "../../../protocols/round-robin/stream.js";
import { RoundRobinClient, RoundRobinWorker } from "../../../protocols/round-robin/worker/worker.js";
import { type CurveClient, parseTcpUrl } from "../../../protocols/zeromq/index.js";
import { startBroker } from "../../../server.js";
import { table } from "../../lib/terminal/table.js";
import { detectTerminal } from "../../lib/terminal/terminal.js";
import { ConsoleOutput, commandList, runConsole } from "./console.js";

interface ServerConsoleOptions {
  readonly bind: string;
  readonly level: number;
  readonly insecure: boolean;
  readonly settings: ListenerSettings;
  /** The data directory; a temporary one if absent. */
  readonly data?: string | undefined;
  readonly script?: string | undefined;
}

export async function runServerConsole(options: ServerConsoleOptions): Promise<number> {
  const { bind, level, insecure, settings, script, data } = options;
  const { host, port } = parseTcpUrl(bind);
  checkListeners([{ name: "round-robin", host, ports: [port] }], insecure);
  const output = new ConsoleOutput("SERVER", level);
  const log = logTo(output);
  const dir = data ?? makeTemporaryFolder("laboro-rr-");
  try {
    const broker = await startBroker({ dir, port: 0, log });
    try {
      const context = {
        core: broker.core,
        guard: broker.guard,
        log,
        peerErrors: new PeerErrors(log),
        connections: new TracedConnections(),
        settings,
      };
      const trace = (message: Message, from: string, to?: string): void => {
        const passed = to === undefined ? "" : `, passed ${message.command === "RESPONSE" ? "back" : "on"} to ${to}`;
        output.log(levelOf(message), `${messageName(message)} from ${from}${passed}`);
      };
      const listener = await openRoundRobinListener(context, { host, ports: [port] }, { trace });
      const commands = {
        workers: { run: () => output.print(...workersText(listener.server.workers())) },
      };
      output.log(1, `listening on ${listener.urls.join(", ")}; commands: ${commandList(commands)}`);
      output.log(1, `laboro's own verbs find it with LABORO_DATA=${dir}`);
      await runConsole({ commands, output, script });
      await listener.close();
    } finally {
      await broker.stop();
    }
  } finally {
    if (data === undefined) rmSync(dir, { recursive: true, force: true });
  }
  output.log(1, "finished");
  return output.failures;
}

function workersText(rows: readonly WorkerRow[]): readonly string[] {
  if (rows.length === 0) return ["no workers are registered"];
  const columns = [
    { title: "WORKER" },
    { title: "FREE SLOTS", align: "right" },
    { title: "SLOTS", align: "right" },
    { title: "MESSAGES", align: "right" },
  ] as const;
  const cells = rows.map(({ address, freeSlots, slots, messages }) => [
    address,
    String(freeSlots),
    String(slots),
    String(messages),
  ]);
  return [...table(columns, cells, detectTerminal()), rows.length === 1 ? "1 worker" : `${rows.length} workers`];
}

/** Heartbeats and messages that free slots are logged at higher levels than requests and replies. */
function levelOf({ command, args: [what] }: Message): number {
  if (command === "PING" || command === "PONG") return 10;
  return command !== "RESPONSE" && isArgument(what, INCREMENT) ? 5 : 1;
}

function logTo(output: ConsoleOutput): Log {
  return {
    info: (_fields, text) => output.log(5, text),
    warn: (_fields, text) => output.log(1, text),
    error: (_fields, text) => output.fail(new Error(text)),
  };
}

/** `laboro rr client`: a console that asks, once or in bulk. */
interface ClientConsoleOptions {
  readonly url: string;
  readonly level: number;
  readonly script?: string | undefined;
  readonly curve?: CurveClient | undefined;
  /** Timeout of a connection. */
  readonly connectMs?: number;
}

/** Concurrent requests of a bulk test. */
const PARALLEL = 10;
/** The size of a requested STREAM. */
const STREAM_SIZE = 1024;
/** How many progress lines a bulk test prints, at most. */
const MARKS = 100;

export async function runClientConsole({ level, script, ...options }: ClientConsoleOptions): Promise<number> {
  const { url } = options;
  const output = new ConsoleOutput("CLIENT", level);
  const client = await RoundRobinClient.open(options);

  const stream = async (): Promise<void> => {
    const fault = testDataError(await client.stream(STREAM_SIZE), STREAM_SIZE);
    if (fault !== undefined) throw new LaboroError("LABORO_SERVICE_FAILED", `the stream has ${fault}`);
  };

  const commands = {
    ping: {
      run: async () => {
        await client.ping();
        output.log(1, "EXEC PING was sent");
      },
    },
    pingt: {
      run: async () => {
        const worker = await client.pingTracked();
        output.log(1, `TRACKEXEC PING was answered by ${worker}`);
      },
    },
    data: {
      run: async () => {
        await stream();
        output.log(1, `STREAM: all ${STREAM_SIZE} bytes have come`);
      },
    },
    bulkping: { takes: "N", run: (count: number) => bulk("PING", count, () => client.pingTracked(), output) },
    bulkdata: { takes: "N", run: (count: number) => bulk("STREAM", count, stream, output) },
  } as const;
  output.log(1, `for the server at ${url}; commands: ${commandList(commands)}`);
  await runConsole({ commands, output, script });
  await client.close();
  output.log(1, "finished");
  return output.failures;
}

/** Stops when the server cannot be reached. */
async function bulk(name: string, count: number, one: () => Promise<unknown>, output: ConsoleOutput): Promise<void> {
  let begun = 0;
  let ended = 0;
  let succeeded = 0;
  let reachable = true;
  const every = Math.max(1, Math.ceil(count / MARKS));
  const sendNext = async (): Promise<void> => {
    while (begun < count && reachable) {
      begun++;
      await one().then(
        () => succeeded++,
        (cause: unknown) => {
          output.fail(cause);
          if (asLaboroError(cause).code === "LABORO_BROKER_UNREACHABLE") reachable = false;
        },
      );
      ended++;
      if (ended % every === 0 || ended === count) output.log(1, `${name} ${ended} of ${count} completed`);
    }
  };
  output.log(1, `${count} ${name} tests, up to ${PARALLEL} in flight`);
  await Promise.all(Array.from({ length: Math.min(PARALLEL, count) }, sendNext));
  const row = (...cells: readonly string[]): string =>
    `${(cells[0] ?? "").padEnd(8)}${(cells[1] ?? "").padStart(10)}${(cells[2] ?? "").padStart(12)}`;
  output.print(row("TYPE", "SENT", "SUCCEEDED"), row(name, String(begun), String(succeeded)));
}

/** `laboro rr worker`: a console with one worker, and nine more for bulk tests. */
interface WorkerConsoleOptions {
  readonly url: string;
  readonly level: number;
  readonly script?: string | undefined;
  readonly curve?: CurveClient | undefined;
}

/** Workers of this console during a bulk test, each with ten slots. */
const BULK = 10;
const SLOTS = 10;

export async function runWorkerConsole({ url, level, script, curve }: WorkerConsoleOptions): Promise<number> {
  const output = new ConsoleOutput("WORKER", level);
  const open = (): Promise<RoundRobinWorker> =>
    RoundRobinWorker.open({
      url,
      slots: SLOTS,
      curve,
      onMessage: (message) =>
        output.log(
          1,
          `got ${messageName(message)} from ${message.returnPath.at(-1)?.toString("latin1") ?? "the server"}`,
        ),
      onDisconnected: (why) => output.log(1, `the server is gone: ${why}`),
      onReregistered: () => output.log(1, "registered again"),
      onError: (cause) => output.fail(cause),
    });
  const parent = await open();
  let children: RoundRobinWorker[] = [];

  const endBulk = async (): Promise<void> => {
    const ended = children;
    children = [];
    await Promise.all(ended.map((child) => child.close()));
    if (ended.length > 0) output.log(1, `${ended.length} child workers have deregistered and ended`);
    for (const { identity, counts } of ended) output.log(5, `${identity}: ${countsText(counts)}`);
    const total = ended.reduce(
      (sum, { counts }) => ({
        messages: sum.messages + counts.messages,
        answered: sum.answered + counts.answered,
        failed: sum.failed + counts.failed,
      }),
      { messages: 0, answered: 0, failed: 0 },
    );
    if (ended.length > 0) output.log(5, `together: ${countsText(total)}`);
  };

  const commands = {
    register: {
      run: async () => {
        await parent.register();
        output.log(1, `registered as ${parent.identity} with ${SLOTS} slots`);
      },
    },
    deregister: {
      run: async () => {
        await parent.deregister();
        output.log(1, "deregistered");
      },
    },
    bulk: {
      run: async () => {
        const wanted = BULK - children.length - (parent.registered ? 1 : 0);
        const more = await Promise.all(Array.from({ length: Math.max(0, wanted) }, open));
        children.push(...more);
        await Promise.all(more.map((child) => child.register()));
        output.log(1, `${children.length} child workers are registered, ${SLOTS} slots each`);
      },
    },
    endbulk: { run: endBulk },
  };
  output.log(1, `for the server at ${url}; commands: ${commandList(commands)}`);
  await runConsole({ commands, output, script });
  await endBulk();
  await parent.close();
  output.log(1, "finished");
  return output.failures;
}

const countsText = ({ messages, answered, failed }: RoundRobinWorker["counts"]): string =>
  `${messages} messages, ${answered} succeeded, ${failed} failed`;
