/** A worker for a foreman of fuq: the original program, one by the text, or another broker of ours. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { now } from "../../../base/clock.js";
import { Complaints } from "../../../base/complaints.js";
import { LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { openSlots } from "../../../worker/processes/index.js";
import { MESSAGE_LIMIT, STREAM } from "../codec.js";
import { STREAM_V1 } from "../codec-v1.js";
import { COUNT_LIMIT } from "../messages.js";
import type { ForemanUrl } from "./foreman-url.js";
import { ForemanHttp } from "./http-client.js";
import { Persistent } from "./persistent.js";
import { Poller } from "./poll.js";
import { type Address, overStream } from "./raw.js";
import { type Ending, Shift } from "./shift.js";
import { Tasks } from "./tasks.js";
import { ClientV1 } from "./v1.js";
import type { Way, WayEvents } from "./way.js";
import { overWebSocket } from "./web.js";

/** How the foreman is spoken to. */
export type Place =
  | { readonly by: "websocket" | "polling"; readonly foreman: ForemanUrl }
  | { readonly by: "raw" | "v1"; readonly address: Address };

export interface FuqWorkerOptions {
  readonly place: Place;
  readonly slots: number;
  /** What this machine is called; the foreman makes a name of it. */
  readonly node: string;
  readonly tags?: readonly string[];
  /** Where logs go of jobs that do not say where: `logs` in it. */
  readonly dir: string;
  /** Between SIGTERM and SIGKILL of a cancelled task; SIGKILL at once if absent, as the original does it. */
  readonly cancelGraceMs?: number;
  readonly log: Log;
  readonly onJoined?: () => void;
  readonly onRefused?: (error: LaboroError) => void;
  readonly onUnreachable?: (error: LaboroError, times: number) => void;
  /** It has ended, and not because `stop` was called. */
  readonly onStopped?: () => void;
  /** The first pause after a try in vain; doubles with each. */
  readonly firstDelayMs?: number;
  /** The greatest sequence number. */
  readonly maxSequence?: number;
}

export interface StopOptions {
  /** Let what runs end by itself, and tell of it. */
  readonly finish?: boolean;
  /** How long to wait for a foreman that is not there to take what is done. */
  readonly patienceMs?: number;
}

export interface FuqWorker {
  readonly joined: boolean;
  stop(options?: StopOptions): Promise<void>;
}

const PATIENCE_MS = 60_000;
/** How long a foreman is asked to let us go. */
const ASK_MS = 5_000;

export function startFuqWorker(options: FuqWorkerOptions): FuqWorker {
  const { place, slots: count, log, dir, cancelGraceMs = 0 } = options;
  if (count > COUNT_LIMIT) {
    throw new LaboroError("LABORO_BAD_INPUT", `${count} slots: fuq can count ${COUNT_LIMIT} at most`);
  }
  const logDirectory = join(dir, "logs");
  mkdirSync(logDirectory, { recursive: true, mode: 0o700 });
  const slots = openSlots({ count, now, env: environmentOfTasks() });
  const tasks = new Tasks({ slots, logDirectory, cancelGraceMs, log, onEnded: () => way.tell() });
  const http = "foreman" in place ? foremanHttp(options, place.foreman) : undefined;
  let over: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    over = resolve;
  });
  let said = false;
  const events: WayEvents = {
    onJoined: () => {
      if (!said) log.info({}, "joined the foreman");
      said = true;
      options.onJoined?.();
    },
    onRefused: (error) => options.onRefused?.(error),
    onUnreachable: (error, times) => {
      said = false;
      options.onUnreachable?.(error, times);
    },
    onOver: () => over(),
  };
  const way = wayTo(options, tasks, events, http);
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= (async () => {
      way.close();
      http?.close();
      await slots.close();
    })();
    return closing;
  };
  let stopping = false;
  void ended.then(close).then(() => {
    if (!stopping) options.onStopped?.();
  });
  return {
    get joined() {
      return way.joined;
    },
    stop: async ({ finish = false, patienceMs = PATIENCE_MS } = {}) => {
      stopping = true;
      if (finish) {
        await way.leave();
        await Promise.race([ended, unheard(way, tasks, patienceMs)]);
      }
      await close();
    },
  };
}

function foremanHttp({ node, slots, tags = [] }: FuqWorkerOptions, foreman: ForemanUrl): ForemanHttp {
  return new ForemanHttp(foreman, { node, pid: process.pid, tags, nproc: slots });
}

function wayTo(options: FuqWorkerOptions, tasks: Tasks, events: WayEvents, http: ForemanHttp | undefined): Way {
  const { place, slots, log, firstDelayMs, maxSequence } = options;
  const common = { tasks, log, ...events, ...(firstDelayMs === undefined ? {} : { firstDelayMs }) };
  const complaints = new Complaints(log);
  const complain = (why: string): void => complaints.about("worker", "the foreman", "LABORO_BAD_MESSAGE", why);
  const shift = { tasks, log, complain, ...(maxSequence === undefined ? {} : { maxSequence }) };
  if ("address" in place) {
    const first = place.by === "v1";
    return new Persistent({
      ...common,
      connect: overStream(place.address, first ? STREAM_V1 : STREAM, MESSAGE_LIMIT),
      speak: (events) =>
        first ? new ClientV1({ tasks, complain, events }) : new Shift({ ...shift, peer: "text", events }),
    });
  }
  if (http === undefined) throw new Error("there is no HTTP to this foreman");
  if (place.by === "polling") return new Poller({ ...common, http, slots });
  const ending: Ending = { begun: false };
  return new Persistent({
    ...common,
    connect: overWebSocket(place.foreman, http),
    speak: (events) => new Shift({ ...shift, peer: "original", ending, events }),
    askToStop: () => {
      ending.begun = true;
      return http.leave(AbortSignal.timeout(ASK_MS)).catch(() => false);
    },
  });
}

/** Resolves when all is done and nobody has been there for so long to hear of it. */
async function unheard(way: Way, tasks: Tasks, patienceMs: number): Promise<void> {
  for (let left = patienceMs; left > 0 && (way.joined || tasks.nrun > 0); ) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS).unref());
    left = way.joined || tasks.updates.length < tasks.nrun ? patienceMs : left - LOOK_MS;
  }
}

const LOOK_MS = 100;

/** The worker's own, but for what lets it in: what a task prints of its environment ends up in its log. */
function environmentOfTasks(): NodeJS.ProcessEnv {
  const { LABORO_BROKER: _, LABORO_FUQ_TOKEN: __, ...env } = process.env;
  return env;
}
