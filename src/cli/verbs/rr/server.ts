/** `laboro rr server`: a broker with a round-robin listener, and a console with its worker table. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Log } from "../../../base/log.js";
import { PeerErrors } from "../../../base/peer-errors.js";
import { TracedConnections } from "../../../base/traced-connections.js";
import type { ListenerSettings } from "../../../broker/listeners/listener.js";
import { checkListeners } from "../../../broker/listeners/listener-requests.js";
import { openRoundRobinListener } from "../../../protocols/round-robin/broker/listener.js";
import type { WorkerRow } from "../../../protocols/round-robin/broker/worker-table.js";
import { messageName } from "../../../protocols/round-robin/describe.js";
import { INCREMENT, isArgument, type Message } from "../../../protocols/round-robin/frames.js";
import { parseTcpUrl } from "../../../protocols/zeromq/index.js";
import { startBroker } from "../../../server.js";
import { table } from "../../lib/terminal/table.js";
import { detectTerminal } from "../../lib/terminal/terminal.js";
import { ConsoleOutput, commandList, runConsole } from "./console.js";

export interface ServerConsoleOptions {
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
  const dir = data ?? mkdtempSync(join(tmpdir(), "laboro-rr-"));
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

/** Heartbeats and what frees slots are of interest later than requests and their way back. */
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
