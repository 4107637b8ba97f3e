/** A worker for a fuq foreman: the original program, one that follows the specification, or a laboro broker. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { now } from "../../../base/clock.js";
import { badInput, type LaboroError } from "../../../base/errors.js";
import { type Log, PeerErrors } from "../../../base/log.js";
import { openSlots } from "../../../worker/processes/index.js";
import { STREAM_LAYOUT, STREAM_LAYOUT_V1 } from "../codec.js";
import { COUNT_LIMIT } from "../messages.js";
import { ClientV1 } from "./client-v1.js";
import { type Address, ForemanHttp, type ForemanUrl, tcpConnector, webSocketConnector } from "./foreman-http.js";
import { ForemanSession } from "./foreman-session.js";
import { PersistentTransport, type Transport, type TransportOptions } from "./persistent-transport.js";
import { PollingTransport } from "./polling-transport.js";
import { RunningTasks } from "./running-tasks.js";

export type ForemanEndpoint =
  | { readonly by: "websocket" | "polling"; readonly foreman: ForemanUrl }
  | { readonly by: "raw" | "v1"; readonly address: Address };

export interface FuqWorkerOptions {
  readonly endpoint: ForemanEndpoint;
  readonly slots: number;
  /** The name of this machine. The foreman makes the worker's name from it. */
  readonly node: string;
  readonly tags?: readonly string[];
  /** Logs of jobs without a LoggingDir are in its folder `logs`. */
  readonly dir: string;
  /** Between SIGTERM and SIGKILL of a cancelled task. Without it SIGKILL at once, as in the original. */
  readonly cancelGraceMs?: number;
  readonly log: Log;
  readonly onJoined?: () => void;
  readonly onRefused?: (error: LaboroError) => void;
  readonly onUnreachable?: (error: LaboroError, times: number) => void;
  /** Called when the worker has ended other than by `stop`. */
  readonly onStopped?: () => void;
  /** The pause after the first failed try. Doubles with each. */
  readonly firstDelayMs?: number;
  readonly maxSequence?: number;
}

export interface FuqWorker {
  readonly joined: boolean;
  /** With `finish`, running tasks may finish and are reported. */
  stop(options?: { readonly finish?: boolean }): Promise<void>;
}

/** How long to wait for an unreachable foreman to accept the results, and how often to check. */
const UNREACHABLE_TIMEOUT_MS = 60_000;
const CHECK_MS = 100;
/** How long a foreman may take to answer the request to stop this worker. */
const STOP_REQUEST_MS = 5_000;

export function startFuqWorker(options: FuqWorkerOptions): FuqWorker {
  const { endpoint, slots: count, log, dir, cancelGraceMs = 0, node, tags = [] } = options;
  if (count > COUNT_LIMIT) throw badInput(`${count} slots: fuq can count ${COUNT_LIMIT} at most`);
  const logDirectory = join(dir, "logs");
  mkdirSync(logDirectory, { recursive: true, mode: 0o700 });
  const slots = openSlots({ count, now, env: environmentOfTasks() });
  const tasks = new RunningTasks({ slots, logDirectory, cancelGraceMs, log, onEnded: () => transport.sendUpdates() });
  const info = { node, pid: process.pid, tags, nproc: count };
  const http = "foreman" in endpoint ? new ForemanHttp(endpoint.foreman, info) : undefined;
  let resolveEnded: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    resolveEnded = resolve;
  });
  let joinLogged = false;
  const transport = createTransport(options, http, {
    tasks,
    log,
    firstDelayMs: options.firstDelayMs,
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
    onFinished: resolveEnded,
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    transport.close();
    http?.close();
    closing ??= slots.close();
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

function createTransport(
  { endpoint, slots, log, maxSequence }: FuqWorkerOptions,
  http: ForemanHttp | undefined,
  common: TransportOptions,
): Transport {
  const { tasks } = common;
  const peerErrors = new PeerErrors(log);
  const onPeerError = (why: string): void => peerErrors.report("worker", "the foreman", "LABORO_BAD_MESSAGE", why);
  const sessionOptions = { tasks, log, onPeerError, maxSequence };
  if ("address" in endpoint) {
    const isV1 = endpoint.by === "v1";
    return new PersistentTransport({
      ...common,
      connect: tcpConnector(endpoint.address, isV1 ? STREAM_LAYOUT_V1 : STREAM_LAYOUT),
      createSession: (events) =>
        isV1
          ? new ClientV1({ tasks, onPeerError, events })
          : new ForemanSession({ ...sessionOptions, foremanKind: "text", events }),
    });
  }
  if (http === undefined) throw new Error("a foreman with a URL needs an HTTP client");
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

/** Resolves when the foreman is unreachable: at once without tasks, else after a time from the end of the last. */
async function unreachableFor(transport: Transport, tasks: RunningTasks, timeoutMs: number): Promise<void> {
  for (let left = timeoutMs; left > 0 && (transport.joined || tasks.nrun > 0); ) {
    await new Promise((resolve) => setTimeout(resolve, CHECK_MS).unref());
    left = transport.joined || tasks.updates.length < tasks.nrun ? timeoutMs : left - CHECK_MS;
  }
}

/** Without the worker's credentials, which a task could print into its log. */
function environmentOfTasks(): NodeJS.ProcessEnv {
  const { LABORO_BROKER: _, LABORO_FUQ_TOKEN: __, ...env } = process.env;
  return env;
}
