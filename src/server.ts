/** Wires broker, store and listeners: the one module that knows them all. */
import { rmSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { inUrl, isLoopback, joinUrl } from "./base/addresses.js";
import { ConnectionGuard } from "./base/connection-guard.js";
import { badInput, errnoOf, type LaboroError } from "./base/errors.js";
import { startFailure } from "./base/files/durable.js";
import { makeTemporaryFolder } from "./base/files/temporary.js";

import { type Log, PeerErrors, SILENT } from "./base/log.js";
import { packageVersion } from "./base/package.js";
import { TracedConnections } from "./base/traced-connections.js";
import { Auth, BrowserLogin } from "./broker/access/auth.js";
import { Certificates } from "./broker/access/certificates.js";
import {
  type Access,
  loadOrCreateAdminToken,
  loadOrCreateTokens,
  type Role,
  writeAccess,
} from "./broker/access/tokens.js";
import { Core } from "./broker/core.js";
import type { BrokerInGroup } from "./broker/group/index.js";
import {
  advertisedHost,
  checkListeners,
  type ListenerContext,
  type ListenerFactory,
  type ListenerName,
  type ListenerRequest,
  type OpenListener,
} from "./broker/listeners/listener.js";

import { MainListener } from "./broker/listeners/main-listener.js";
import { Asks } from "./broker/operations/asks.js";
import { setHeld } from "./broker/operations/jobs.js";
import type { BrokerInfo } from "./broker/operations/operation.js";
import {
  type BrokerHost,
  DEFAULT_PORT,
  type RunningBroker,
  type ServerOptions,
  type StartedBroker,
} from "./broker/options.js";
import { startRetention } from "./broker/retention.js";
import { DEFAULT_SETTINGS } from "./dispatch/index.js";
import type { Job } from "./model/job.js";
import type { Store } from "./model/store.js";
import { Links, LinkUpgrades } from "./protocols/laboro/broker/links.js";
import { openSqliteStore } from "./store/sqlite/index.js";

/** As a data directory: a temporary one, removed when the broker stops. */
const IN_MEMORY = ":memory:";
const DEFAULT_HEARTBEAT_MS = 2_000;
const OUTPUT_WINDOW = 1024 * 1024;
/** With `listenLater`: the time from the first task's start, or else the broker's start, to listening. */
const LISTEN_AFTER_MS = 50;
const LISTEN_LATEST_MS = 500;

export async function startBroker(options: ServerOptions): Promise<RunningBroker> {
  if (typeof options?.dir !== "string") throw badInput("startBroker: expected { dir }, a folder for the broker's data");
  const isTemporary = options.dir === IN_MEMORY;
  const dir = isTemporary ? makeTemporaryFolder("laboro-broker-") : options.dir;
  const removeData = (): void => {
    if (isTemporary) rmSync(dir, { recursive: true, force: true });
  };
  const broker = await open({ ...options, dir }).catch((cause: unknown) => {
    removeData();
    throw cause;
  });
  const stopBroker = broker.stop.bind(broker);
  const stop = async (): Promise<void> => {
    await stopBroker();
    removeData();
  };
  return Object.assign(broker, { stop, [Symbol.asyncDispose]: stop });
}

async function open(options: ServerOptions): Promise<StartedBroker> {
  if (options.store !== undefined) return (await import("./broker/group/reopen.js")).startInGroup(options, openBroker);
  const host: BrokerHost = { openStore: () => ownStore(options), failed: (cause) => options.onFailed?.(cause) };
  return openBroker(options, host).catch((cause: unknown) => {
    throw startFailure(cause, "the broker", options.dir);
  });
}

async function holdJobs(core: Core, isWanted: (job: Job) => boolean): Promise<void> {
  const wanted = [...core.state.jobs.values()].filter(({ job, held }) => !held && isWanted(job));
  await Promise.all(wanted.map(({ job }) => setHeld(core, job.id, true)));
}

async function openBroker(options: ServerOptions, brokerHost: BrokerHost): Promise<StartedBroker> {
  const { dir, host = "127.0.0.1", log = SILENT, tls = "auto", advertise = [] } = options;
  const local = isLoopback(host);
  if (tls === "off" && !local) {
    throw badInput(`other machines can reach ${host}: it is not opened without TLS`);
  }
  checkListeners(options.listeners ?? [], options.insecure ?? false);
  const { core, store } = await openCore(options, brokerHost, log);
  let group: BrokerInGroup | undefined;
  const close = async (): Promise<void> => {
    await core.stop();
    await group?.leave();
    await store.close();
  };
  try {
    if (options.holdAtStart !== undefined) await holdJobs(core, options.holdAtStart);
    const shared = brokerHost.group === undefined ? undefined : await import("./broker/group/shared-access.js");
    const token = (await shared?.adminToken(core, dir, options.token)) ?? options.token ?? loadOrCreateAdminToken(dir);
    const tokens = (await shared?.sharedTokens(core, dir, token, log)) ?? loadOrCreateTokens(dir, token);
    const names = [...advertise, ...(isWildcard(host) ? [] : [host])];
    const certificates = new Certificates(dir, names, Date.now, shared?.sharedCa(core));
    const ca = local && tls !== "on" ? undefined : await certificates.fingerprint();
    const browserLogin = new BrowserLogin(token);
    const connections = new TracedConnections();
    const peerErrors = new PeerErrors(log);
    const name = advertise[0] ?? (isWildcard(host) ? await advertisedHost() : host);
    const scheme = ca === undefined ? "http" : "https";
    let url = `${scheme}://${inUrl(local ? host : name)}`;
    let listeners: readonly OpenListener[] = [];
    // A fragment stays in the browser: it is in no request, no log and no Referer.
    const newLoginLink = (role: Role = "admin") => {
      const { code, expires } = browserLogin.newCode(role);
      return { code, expires, url: `${url}/#login=${code}` };
    };
    const settings = options.listenerSettings ?? {};
    const guard = new ConnectionGuard(options.connectionBounds, (...refusal) => peerErrors.report(...refusal));
    const auth = new Auth(tokens, browserLogin, guard);
    const info: BrokerInfo = {
      version: packageVersion(),
      connections,
      asks: new Asks(options.askBounds),
      disk: () => diskSpace(dir),
      damage: async () => (await import("./store/sqlite/damage.js")).damageReports(dir),
      listeners: () => [{ name: "main", url }, ...listenerUrls(listeners)],
      newLoginLink,
      ...(brokerHost.group?.stepBack === undefined ? {} : { stepBack: brokerHost.group.stepBack }),
    };
    const links = new Links(core, auth, info, {
      log,
      broker: `broker-${core.state.epoch}`,
      heartbeatMs: options.heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
      outputWindow: OUTPUT_WINDOW,
      greetingTimeoutMs: guard.greetingTimeoutMs,
      onStarted: () => taskStarted(),
    });
    const newMainListener = (): MainListener =>
      new MainListener(core, {
        ...{ auth, info, log },
        link: new LinkUpgrades(links, auth),
        guard,
        openFuq: async () => {
          const { FuqHttp } = await import("./protocols/fuq/broker/http/index.js");
          return new FuqHttp({ core, guard, auth, info, log, peerErrors, connections, settings });
        },
        ...(tls === "off" ? {} : { certificate: () => serverCertificate(certificates, log) }),
      });
    if (store.group !== undefined && brokerHost.group !== undefined) {
      const { BrokerInGroup: InGroup } = await import("./broker/group/index.js");
      const { ClientLink } = await import("./client/link.js");
      group = new InGroup(core, store.group, {
        ...brokerHost.group,
        ...{ token, log, version: packageVersion(), onLeaseLost: brokerHost.failed },
        connect: (peer) => new ClientLink(peer),
        listeners: () => [{ name: "main", url }, ...listenerUrls(listeners)],
      });
    }
    let mainListener: MainListener | undefined;
    let portChanged = false;
    const access = (): Access => (ca === undefined ? { url, token } : { url, token, ca });
    const openMainListener = async (): Promise<void> => {
      const opening = newMainListener();
      const opened = await listen(opening, host, options.port);
      mainListener = opening;
      portChanged = opened.portChanged;
      // Set at once, because a peer that waited for this broker may already ask for its address.
      url = `${scheme}://${inUrl(local ? host : name)}:${opened.port}`;
    };
    const closeListeners = async (): Promise<void> => {
      links.close();
      await Promise.all([mainListener, ...listeners].map((one) => one?.close()));
    };
    const later = options.listenLater === true ? new Later(LISTEN_LATEST_MS) : undefined;
    let started = false;
    const taskStarted = (): void => {
      if (!started) later?.in(LISTEN_AFTER_MS);
      started = true;
    };
    const listening = later?.due.then(async () => {
      if (core.stopping) return;
      await openMainListener();
      writeAccess(dir, access());
    });
    listening?.catch((cause: unknown) => log.error({}, `no other process can connect: ${String(cause)}`));
    if (listening === undefined) await openMainListener();
    const stopRetention = startRetention(core, options.retention ?? {}, log);
    try {
      listeners = await openListeners(options.listeners ?? [], {
        ...{ core, guard, log, peerErrors, connections, settings },
      });
      if (listening === undefined) writeAccess(dir, access());
      await group?.start();
      core.schedules.look();
      const workerUrl = () => joinUrl({ ...access(), token: tokens.ofRole("worker") ?? token });
      core.allocators.start({ ...options.allocations, joinUrl: workerUrl });
    } catch (cause) {
      stopRetention();
      await closeListeners();
      throw cause;
    }
    return {
      token,
      ca,
      get url() {
        return url;
      },
      core,
      guard,
      portChanged,
      listeners,
      openLink: (given) => links.openInProcess(given),
      tokenOf: (role) => tokens.ofRole(role),
      joinUrl: (role = "worker") => joinUrl({ ...access(), token: tokens.ofRole(role) ?? token }),
      newLoginLink,
      stop: async () => {
        stopRetention();
        later?.in(0);
        await core.stop();
        await listening?.catch(() => {});
        await group?.leave();
        await closeListeners();
        await store.close();
      },
    };
  } catch (cause) {
    await close();
    throw cause;
  }
}

/** Resolves after a time that can be changed meanwhile. */
class Later {
  readonly due: Promise<void>;
  #resolve = (): void => {};
  #timer: NodeJS.Timeout;

  constructor(ms: number) {
    this.due = new Promise((resolve) => (this.#resolve = resolve));
    this.#timer = setTimeout(this.#resolve, ms);
  }

  in(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#resolve, ms);
  }
}

/** Each is loaded when it is opened. */
const LISTENERS: Readonly<Record<ListenerName, () => Promise<ListenerFactory>>> = {
  fuq: async () => (await import("./protocols/fuq/broker/listener.js")).openFuqListener,
  fuq1: async () => (await import("./protocols/fuq/broker/listener.js")).openFuq1Listener,
  runexp: async () => (await import("./protocols/runexp/broker/listener.js")).openRunexpListener,
  "round-robin": async () => (await import("./protocols/round-robin/broker/listener.js")).openRoundRobinListener,
  scale0: async () => (await import("./protocols/scale0/broker/listener.js")).openScale0Listener,
};

/** All or none: if one cannot be opened, the others are closed. */
async function openListeners(
  requests: readonly ListenerRequest[],
  context: ListenerContext,
): Promise<readonly OpenListener[]> {
  const open: OpenListener[] = [];
  try {
    for (const { name, pool, ...address } of requests) {
      const openListener = await LISTENERS[name]();
      const settings = pool === undefined ? context.settings : { ...context.settings, pool };
      const listener = await openListener({ ...context, settings }, address);
      open.push({ name, urls: listener.urls, close: () => listener.close() });
    }
    return open;
  } catch (cause) {
    await Promise.all(open.map((listener) => listener.close()));
    throw cause;
  }
}

const listenerUrls = (listeners: readonly OpenListener[]): { name: string; url: string }[] =>
  listeners.flatMap(({ name, urls }) => urls.map((url) => ({ name, url })));

const ownStore = ({ dir, log = SILENT, allowNetworkFilesystem }: ServerOptions): Store =>
  openSqliteStore({
    dir,
    log: (line, code) => (code === undefined ? log.warn({}, line) : log.error({ code }, line)),
    ...(allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem }),
  });

async function openCore(
  options: ServerOptions,
  brokerHost: BrokerHost,
  log: Log,
): Promise<{ core: Core; store: Store }> {
  const store = await brokerHost.openStore();
  const failed = (cause: LaboroError): void => {
    log.error({ code: cause.code }, `the store has failed: ${cause.message}`);
    brokerHost.failed(cause);
  };
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const core = await Core.open(store, settings, log, failed).catch(async (cause: unknown) => {
    await store.close();
    throw cause;
  });
  return { core, store };
}

/** Listens on the given port. Without one, on the default port, or on any free port if that is taken. */
async function listen(
  listener: MainListener,
  host: string,
  port: number | undefined,
): Promise<{ port: number; portChanged: boolean }> {
  try {
    return { port: (await listener.listen(host, port ?? DEFAULT_PORT)).port, portChanged: false };
  } catch (cause) {
    const taken = errnoOf(cause) === "EADDRINUSE";
    if (taken && port === undefined) return { port: (await listener.listen(host, 0)).port, portChanged: true };
    const why = taken ? "something else listens there" : String(cause);
    throw badInput(`cannot listen on ${host}:${port ?? DEFAULT_PORT}: ${why}`, cause);
  }
}

async function diskSpace(dir: string): Promise<{ free: number; total: number }> {
  const { bavail, blocks, bsize } = await statfs(dir);
  return { free: bavail * bsize, total: blocks * bsize };
}

const isWildcard = (host: string): boolean => host === "0.0.0.0" || host === "::" || host === "";

async function serverCertificate(certificates: Certificates, log: Log): ReturnType<Certificates["serverCertificate"]> {
  try {
    return await certificates.serverCertificate();
  } catch (cause) {
    log.error({ error: String(cause) }, "no certificate for TLS connections");
    throw cause;
  }
}
