/** A worker for a foreman of fuq: the original program, one by the text, or another laboro broker. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { now } from "../../../base/clock.js";
import { badInput, type LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { PeerErrors } from "../../../base/peer-errors.js";
import { openSlots } from "../../../worker/processes/index.js";
import { MESSAGE_LIMIT, STREAM_LAYOUT } from "../codec.js";
import { STREAM_LAYOUT_V1 } from "../codec-v1.js";
import { COUNT_LIMIT } from "../messages.js";
import { ClientV1 } from "./client-v1.js";
import { ForemanSession } from "./foreman-session.js";
import { ForemanTasks } from "./foreman-tasks.js";
import type { ForemanUrl } from "./foreman-url.js";
import { ForemanHttp } from "./http-client.js";
import { PersistentTransport } from "./persistent-transport.js";
import { PollingTransport } from "./polling-transport.js";
import { type Address, tcpConnector } from "./tcp.js";
import type { Transport, TransportEvents } from "./transport.js";
import { webSocketConnector } from "./web-socket.js";

/** The foreman's address and transport. */
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
  /** Let running tasks end by themselves, and report them. */
  readonly finish?: boolean;
}

export interface FuqWorker {
  readonly joined: boolean;
  stop(options?: StopOptions): Promise<void>;
}

/** How long to wait for an unreachable foreman to accept the results, and how often to look. */
const UNREACHABLE_TIMEOUT_MS = 60_000;
const CHECK_MS = 100;
/** How long a foreman may take to answer the request to stop this worker. */
const STOP_REQUEST_MS = 5_000;

export function startFuqWorker(options: FuqWorkerOptions): FuqWorker {
  const { endpoint, slots: count, log, dir, cancelGraceMs = 0 } = options;
  if (count > COUNT_LIMIT) {
    throw badInput(`${count} slots: fuq can count ${COUNT_LIMIT} at most`);
  }
  const logDirectory = join(dir, "logs");
  mkdirSync(logDirectory, { recursive: true, mode: 0o700 });
  const slots = openSlots({ count, now, env: environmentOfTasks() });
  const tasks = new ForemanTasks({ slots, logDirectory, cancelGraceMs, log, onEnded: () => transport.sendUpdates() });
  const http = "foreman" in endpoint ? foremanHttp(options, endpoint.foreman) : undefined;
  let resolveEnded: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    resolveEnded = resolve;
  });
  let joinLogged = false;
  const events: TransportEvents = {
    onJoined: () => {
      if (!joinLogged) log.info({}, "joined the foreman");
      joinLogged = true;
      options.onJoined?.();
    },
    onRefused: (error) => options.onRefused?.(error),
    onUnreachable: (error, times) => {
      joinLogged = false;
      options.onUnreachable?.(error, times);
    },
    onFinished: () => resolveEnded(),
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
    stop: async ({ finish = false } = {}) => {
      stopping = true;
      if (finish) {
        await transport.leave();
        await Promise.race([ended, unreachableFor(transport, tasks, UNREACHABLE_TIMEOUT_MS)]);
      }
      await close();
    },
  };
}

function foremanHttp({ node, slots, tags = [] }: FuqWorkerOptions, foreman: ForemanUrl): ForemanHttp {
  return new ForemanHttp(foreman, { node, pid: process.pid, tags, nproc: slots });
}

function createTransport(
  options: FuqWorkerOptions,
  tasks: ForemanTasks,
  events: TransportEvents,
  http: ForemanHttp | undefined,
): Transport {
  const { endpoint, slots, log, firstDelayMs, maxSequence } = options;
  const common = { tasks, log, ...events, firstDelayMs };
  const peerErrors = new PeerErrors(log);
  const onPeerError = (why: string): void => peerErrors.report("worker", "the foreman", "LABORO_BAD_MESSAGE", why);
  const sessionOptions = { tasks, log, onPeerError, maxSequence };
  if ("address" in endpoint) {
    const first = endpoint.by === "v1";
    return new PersistentTransport({
      ...common,
      connect: tcpConnector(endpoint.address, first ? STREAM_LAYOUT_V1 : STREAM_LAYOUT, MESSAGE_LIMIT),
      createSession: (events) =>
        first
          ? new ClientV1({ tasks, onPeerError, events })
          : new ForemanSession({ ...sessionOptions, foremanKind: "text", events }),
    });
  }
  if (http === undefined) throw new Error("there is no HTTP to this foreman");
  if (endpoint.by === "polling") return new PollingTransport({ ...common, http, slots });
  const stopFlag = { stopping: false };
  return new PersistentTransport({
    ...common,
    connect: webSocketConnector(endpoint.foreman, http),
    createSession: (events) => new ForemanSession({ ...sessionOptions, foremanKind: "original", stopFlag, events }),
    requestStop: () => {
      stopFlag.stopping = true;
      return http.requestStop(AbortSignal.timeout(STOP_REQUEST_MS)).catch(() => false);
    },
  });
}

/** Resolves when all tasks have ended and the foreman has been unreachable for so long. */
async function unreachableFor(transport: Transport, tasks: ForemanTasks, timeoutMs: number): Promise<void> {
  for (let left = timeoutMs; left > 0 && (transport.joined || tasks.nrun > 0); ) {
    await new Promise((resolve) => setTimeout(resolve, CHECK_MS).unref());
    left = transport.joined || tasks.updates.length < tasks.nrun ? timeoutMs : left - CHECK_MS;
  }
}

/** The worker's own, without its credentials: what a task prints of its environment ends up in its log. */
function environmentOfTasks(): NodeJS.ProcessEnv {
  const { LABORO_BROKER: _, LABORO_FUQ_TOKEN: __, ...env } = process.env;
  return env;
}
