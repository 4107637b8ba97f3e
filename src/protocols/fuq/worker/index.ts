/** A worker for a foreman of fuq: the original program, one by the text, or another broker of ours. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { now } from "../../../base/clock.js";
import { PeerErrors } from "../../../base/peer-errors.js";
import { LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { openSlots } from "../../../worker/processes/index.js";
import { MESSAGE_LIMIT, STREAM_LAYOUT } from "../codec.js";
import { STREAM_LAYOUT_V1 } from "../codec-v1.js";
import { COUNT_LIMIT } from "../messages.js";
import type { ForemanUrl } from "./foreman-url.js";
import { ForemanHttp } from "./http-client.js";
import { PersistentTransport } from "./persistent-transport.js";
import { PollingTransport } from "./polling-transport.js";
import { type Address, tcpConnector } from "./tcp.js";
import { type StopFlag, ForemanSession } from "./foreman-session.js";
import { ForemanTasks } from "./foreman-tasks.js";
import { ClientV1 } from "./client-v1.js";
import type { Transport, TransportEvents } from "./transport.js";
import { webSocketConnector } from "./web-socket.js";

/** How the foreman is spoken to. */
export type ForemanEndpoint =
  | { readonly by: "websocket" | "polling"; readonly foreman: ForemanUrl }
  | { readonly by: "raw" | "v1"; readonly address: Address };

export interface FuqWorkerOptions {
  readonly endpoint: ForemanEndpoint;
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
  readonly unreachableTimeoutMs?: number;
}

export interface FuqWorker {
  readonly joined: boolean;
  stop(options?: StopOptions): Promise<void>;
}

const UNREACHABLE_TIMEOUT_MS = 60_000;
/** How long a foreman is asked to let us go. */
const ASK_MS = 5_000;

export function startFuqWorker(options: FuqWorkerOptions): FuqWorker {
  const { endpoint: place, slots: count, log, dir, cancelGraceMs = 0 } = options;
  if (count > COUNT_LIMIT) {
    throw new LaboroError("LABORO_BAD_INPUT", `${count} slots: fuq can count ${COUNT_LIMIT} at most`);
  }
  const logDirectory = join(dir, "logs");
  mkdirSync(logDirectory, { recursive: true, mode: 0o700 });
  const slots = openSlots({ count, now, env: environmentOfTasks() });
  const tasks = new ForemanTasks({ slots, logDirectory, cancelGraceMs, log, onEnded: () => transport.sendUpdates() });
  const http = "foreman" in place ? foremanHttp(options, place.foreman) : undefined;
  let over: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    over = resolve;
  });
  let said = false;
  const events: TransportEvents = {
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
    onFinished: () => over(),
  };
  const transport = createTransport(options, tasks, events, http);
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= (async () => {
      transport.close();
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
      return transport.joined;
    },
    stop: async ({ finish = false, patienceMs = UNREACHABLE_TIMEOUT_MS } = {}) => {
      stopping = true;
      if (finish) {
        await transport.leave();
        await Promise.race([ended, unreachableFor(transport, tasks, patienceMs)]);
      }
      await close();
    },
  };
}

function foremanHttp({ node, slots, tags = [] }: FuqWorkerOptions, foreman: ForemanUrl): ForemanHttp {
  return new ForemanHttp(foreman, { node, pid: process.pid, tags, nproc: slots });
}

function createTransport(options: FuqWorkerOptions, tasks: ForemanTasks, events: TransportEvents, http: ForemanHttp | undefined): Transport {
  const { endpoint: place, slots, log, firstDelayMs, maxSequence } = options;
  const common = { tasks, log, ...events, ...(firstDelayMs === undefined ? {} : { firstDelayMs }) };
  const complaints = new PeerErrors(log);
  const complain = (why: string): void => complaints.report("worker", "the foreman", "LABORO_BAD_MESSAGE", why);
  const shift = { tasks, log, complain, ...(maxSequence === undefined ? {} : { maxSequence }) };
  if ("address" in place) {
    const first = place.by === "v1";
    return new PersistentTransport({
      ...common,
      connect: tcpConnector(place.address, first ? STREAM_LAYOUT_V1 : STREAM_LAYOUT, MESSAGE_LIMIT),
      createSession: (events) =>
        first ? new ClientV1({ tasks, onPeerError: complain, events }) : new ForemanSession({ ...shift, foremanKind: "text", events }),
    });
  }
  if (http === undefined) throw new Error("there is no HTTP to this foreman");
  if (place.by === "polling") return new PollingTransport({ ...common, http, slots });
  const ending: StopFlag = { stopping: false };
  return new PersistentTransport({
    ...common,
    connect: webSocketConnector(place.foreman, http),
    createSession: (events) => new ForemanSession({ ...shift, foremanKind: "original", stopFlag: ending, events }),
    requestStop: () => {
      ending.stopping = true;
      return http.requestStop(AbortSignal.timeout(ASK_MS)).catch(() => false);
    },
  });
}

/** Resolves when all is done and nobody has been there for so long to hear of it. */
async function unreachableFor(transport: Transport, tasks: ForemanTasks, patienceMs: number): Promise<void> {
  for (let left = patienceMs; left > 0 && (transport.joined || tasks.nrun > 0); ) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS).unref());
    left = transport.joined || tasks.updates.length < tasks.nrun ? patienceMs : left - LOOK_MS;
  }
}

const LOOK_MS = 100;

/** The worker's own, but for what lets it in: what a task prints of its environment ends up in its log. */
function environmentOfTasks(): NodeJS.ProcessEnv {
  const { LABORO_BROKER: _, LABORO_FUQ_TOKEN: __, ...env } = process.env;
  return env;
}
