/** `laboro rr server`: a broker of its own behind a round-robin door, and a console with its worker table. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Complaints } from "../../../base/complaints.js";
import { Conversations } from "../../../base/conversations.js";
import type { Log } from "../../../base/log.js";
import type { DoorSettings } from "../../../broker/listeners/door.js";
import { refuseOpenDoors } from "../../../broker/listeners/requested.js";
import { openRoundRobinDoor } from "../../../protocols/round-robin/broker/door.js";
import type { WorkerRow } from "../../../protocols/round-robin/broker/worker-table.js";
import { nameOf } from "../../../protocols/round-robin/describe.js";
import type { Message } from "../../../protocols/round-robin/frames.js";
import { placeOf } from "../../../protocols/zeromq/index.js";
import { startBroker } from "../../../server.js";
import { table } from "../../lib/terminal/table.js";
import { terminalOf } from "../../lib/terminal/terminal.js";
import { listOf, runConsole, Voice } from "./console.js";

export interface ServerConsole {
  readonly bind: string;
  readonly level: number;
  readonly insecure: boolean;
  readonly settings: DoorSettings;
  /** Where it keeps what is to outlive it. */
  readonly data?: string;
  readonly script?: string;
}

export async function serverConsole(options: ServerConsole): Promise<number> {
  const { bind, level, insecure, settings, script, data } = options;
  const { host, port } = placeOf(bind);
  refuseOpenDoors([{ name: "round-robin", host, ports: [port] }], insecure);
  const voice = new Voice("SERVER", level);
  const log = logTo(voice);
  const dir = data ?? mkdtempSync(join(tmpdir(), "laboro-rr-"));
  try {
    const broker = await startBroker({ dir, port: 0, log });
    try {
      const context = {
        core: broker.core,
        log,
        complaints: new Complaints(log),
        conversations: new Conversations(),
        settings,
      };
      const trace = (message: Message, from: string): void =>
        voice.say(levelOf(message), `${nameOf(message)} from ${from}`);
      const door = await openRoundRobinDoor(context, { host, ports: [port] }, { trace });
      const commands = {
        workers: { run: () => voice.answer(...workersText(door.server.workers())) },
      };
      voice.say(1, `listening on ${door.urls.join(", ")}; commands: ${listOf(commands)}`);
      voice.say(1, `laboro's own verbs find it with LABORO_DATA=${dir}`);
      await runConsole({ commands, voice, ...(script === undefined ? {} : { script }) });
      await door.close();
    } finally {
      await broker.stop();
    }
  } finally {
    if (data === undefined) rmSync(dir, { recursive: true, force: true });
  }
  voice.say(1, "finished");
  return voice.failures;
}

function workersText(rows: readonly WorkerRow[]): readonly string[] {
  if (rows.length === 0) return ["no workers are registered"];
  const columns = [
    { title: "WORKER" },
    { title: "FREE SLOTS", align: "right" },
    { title: "SLOTS", align: "right" },
    { title: "MESSAGES", align: "right" },
  ] as const;
  const cells = rows.map(({ address, free, slots, handled }) => [
    address,
    String(free),
    String(slots),
    String(handled),
  ]);
  return [...table(columns, cells, terminalOf()), rows.length === 1 ? "1 worker" : `${rows.length} workers`];
}

/** Heartbeats and what frees slots are of interest later than requests. */
function levelOf({ command, args: [what] }: Message): number {
  if (command === "PING" || command === "PONG") return 10;
  return command === "RESPONSE" || what?.[0] === 0x07 ? 5 : 1;
}

function logTo(voice: Voice): Log {
  return {
    info: (_fields, text) => voice.say(5, text),
    warn: (_fields, text) => voice.say(1, text),
    error: (_fields, text) => voice.fail(new Error(text)),
  };
}
