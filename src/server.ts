/** Wires broker, store and listeners: the one module that knows them all. */
import { statfs } from "node:fs/promises";
import { Complaints } from "./base/complaints.js";
import { Conversations } from "./base/conversations.js";
import { errnoOf, LaboroError } from "./base/errors.js";
import { joinUrl } from "./base/join-url.js";
import { type Log, SILENT } from "./base/log.js";
import { inUrl, isLoopback } from "./base/loopback.js";
import { packageVersion } from "./base/version.js";
import { type Access, keptToken, writeAccess } from "./broker/access/access-file.js";
import { Certificates } from "./broker/access/certificates.js";
import { Entry } from "./broker/access/entry.js";
import { Gate } from "./broker/access/gate.js";
import type { Role } from "./broker/access/roles.js";
import { keptTokens } from "./broker/access/tokens.js";
import { Core } from "./broker/core.js";
import type { BrokerInGroup } from "./broker/group/index.js";
import type { DoorContext, DoorName, OpenDoor } from "./broker/listeners/door.js";
import { MainDoor } from "./broker/listeners/main-door.js";
import { ownName } from "./broker/listeners/own-name.js";
import { type DoorRequest, type OpenedDoor, refuseOpenDoors } from "./broker/listeners/requested.js";
import type { BrokerFace } from "./broker/operations/operation.js";
import { DEFAULT_PORT, type House, type RunningBroker, type ServerOptions } from "./broker/options.js";
import { keepWithin } from "./broker/retention.js";
import { DEFAULT_SETTINGS } from "./dispatch/index.js";
import type { Store } from "./model/store.js";
import { Links } from "./protocols/laboro/broker/links.js";
import { openSqliteStore } from "./store/sqlite/index.js";

const DEFAULT_HEARTBEAT_MS = 2_000;
const OUTPUT_WINDOW = 1024 * 1024;

export async function startBroker(options: ServerOptions): Promise<RunningBroker> {
  if (options.store !== undefined) return (await import("./broker/group/lives.js")).startInGroup(options, openBroker);
  return openBroker(options, {
    openStore: () => ownStore(options),
    failed: (cause) => options.onFailed?.(cause),
  });
}

async function openBroker(options: ServerOptions, house: House): Promise<RunningBroker> {
  const { dir, host = "127.0.0.1", log = SILENT, tls = "auto", advertise = [] } = options;
  const local = isLoopback(host);
  if (tls === "off" && !local) {
    throw new LaboroError("LABORO_BAD_INPUT", `other machines can reach ${host}: it is not opened without TLS`);
  }
  refuseOpenDoors(options.doors ?? [], options.insecure ?? false);
  const { core, store } = await openCore(options, house, log);
  let group: BrokerInGroup | undefined;
  const close = async (): Promise<void> => {
    await core.stop();
    await group?.leave();
    await store.close();
  };
  try {
    const shared = house.group === undefined ? undefined : await import("./broker/group/shared-access.js");
    const token = (await shared?.adminToken(core, dir, options.token)) ?? options.token ?? keptToken(dir);
    const tokens = (await shared?.sharedTokens(core, dir, token, log)) ?? keptTokens(dir, token);
    const names = [...advertise, ...(isWildcard(host) ? [] : [host])];
    const certificates = new Certificates(dir, names, Date.now, shared?.agreedCa(core));
    const ca = local && tls !== "on" ? undefined : await certificates.fingerprint();
    const entry = new Entry(token);
    const conversations = new Conversations();
    const complaints = new Complaints(log);
    const name = advertise[0] ?? (isWildcard(host) ? await ownName() : host);
    const scheme = ca === undefined ? "http" : "https";
    let url = `${scheme}://${inUrl(local ? host : name)}`;
    let doors: readonly OpenedDoor[] = [];
    const newEntry = (role: Role = "admin") => {
      const { code, expires } = entry.newCode(role);
      return { code, expires, url: `${url}/enter?code=${code}` };
    };
    const settings = options.doorSettings ?? {};
    const gate = new Gate(tokens, entry);
    const face: BrokerFace = {
      version: packageVersion(),
      conversations,
      disk: () => roomIn(dir),
      doors: () => [{ name: "main", url }, ...listed(doors)],
      newEntry,
      ...(house.group?.stepBack === undefined ? {} : { stepBack: house.group.stepBack }),
    };
    const door = new MainDoor(core, {
      ...{ gate, entry, face, log },
      link: new Links(core, gate, face, {
        log,
        broker: `broker-${core.state.epoch}`,
        heartbeatMs: options.heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
        outputWindow: OUTPUT_WINDOW,
      }),
      openFuq: async () => {
        const { FuqHttp } = await import("./protocols/fuq/broker/http/index.js");
        return new FuqHttp({ core, gate, face, log, complaints, conversations, settings });
      },
      ...(tls === "off" ? {} : { certificate: () => shown(certificates, log) }),
    });
    if (store.group !== undefined && house.group !== undefined) {
      const { BrokerInGroup: InGroup } = await import("./broker/group/index.js");
      const { ClientLink } = await import("./client/link.js");
      group = new InGroup(core, store.group, {
        ...house.group,
        ...{ token, log, version: packageVersion(), lost: house.failed },
        connect: (peer) => new ClientLink(peer),
        doors: () => [{ name: "main", url }, ...listed(doors)],
      });
    }
    const { port, moved } = await listen(door, host, options.port);
    // At once: who waited for this broker may ask already where it is.
    url = `${scheme}://${inUrl(local ? host : name)}:${port}`;
    doors = await openDoors(options.doors ?? [], { core, log, complaints, conversations, settings }).catch(
      async (cause: unknown) => {
        await door.close();
        throw cause;
      },
    );
    const forget = options.retention === undefined ? undefined : keepWithin(core, options.retention, log);
    const access: Access = ca === undefined ? { url, token } : { url, token, ca };
    writeAccess(dir, access);
    await group?.start().catch(async (cause: unknown) => {
      await Promise.all([door, ...doors].map((one) => one.close()));
      throw cause;
    });
    return {
      ...access,
      core,
      moved,
      doors,
      tokenOf: (role) => tokens.ofRole(role),
      joinUrl: (role = "worker") => joinUrl({ ...access, token: tokens.ofRole(role) ?? token }),
      newEntry,
      stop: async () => {
        forget?.();
        await core.stop();
        await group?.leave();
        await Promise.all([door, ...doors].map((one) => one.close()));
        await store.close();
      },
    };
  } catch (cause) {
    await close();
    throw cause;
  }
}

/** Each is loaded when it is asked for. */
const DOORS: Readonly<Record<DoorName, () => Promise<OpenDoor>>> = {
  fuq: async () => (await import("./protocols/fuq/broker/door.js")).openFuqDoor,
  fuq1: async () => (await import("./protocols/fuq/broker/door.js")).openFuq1Door,
  runexp: async () => (await import("./protocols/runexp/broker/door.js")).openRunexpDoor,
  "round-robin": async () => (await import("./protocols/round-robin/broker/door.js")).openRoundRobinDoor,
  scale0: async () => (await import("./protocols/scale0/broker/door.js")).openScale0Door,
};

/** All or none: where one cannot be opened, the others are closed again. */
async function openDoors(doors: readonly DoorRequest[], context: DoorContext): Promise<readonly OpenedDoor[]> {
  const open: OpenedDoor[] = [];
  try {
    for (const { name, pool, ...place } of doors) {
      const openDoor = await DOORS[name]();
      const settings = pool === undefined ? context.settings : { ...context.settings, pool };
      const door = await openDoor({ ...context, settings }, place);
      open.push({ name, urls: door.urls, close: () => door.close() });
    }
    return open;
  } catch (cause) {
    await Promise.all(open.map((door) => door.close()));
    throw cause;
  }
}

const listed = (doors: readonly OpenedDoor[]): { name: string; url: string }[] =>
  doors.flatMap(({ name, urls }) => urls.map((url) => ({ name, url })));

const ownStore = ({ dir, log = SILENT, allowNetworkFilesystem, relaxed = false }: ServerOptions): Store =>
  openSqliteStore({
    ...{ dir, relaxed },
    log: (line) => log.warn({}, line),
    ...(allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem }),
  });

async function openCore(options: ServerOptions, house: House, log: Log): Promise<{ core: Core; store: Store }> {
  const store = await house.openStore();
  const failed = (cause: LaboroError): void => {
    log.error({ code: cause.code }, `the store has failed: ${cause.message}`);
    house.failed(cause);
  };
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const core = await Core.open(store, settings, log, failed).catch(async (cause: unknown) => {
    await store.close();
    throw cause;
  });
  return { core, store };
}

/** On the port that is asked for; nobody asked for the default one, so it may be another. */
async function listen(
  door: MainDoor,
  host: string,
  port: number | undefined,
): Promise<{ port: number; moved: boolean }> {
  try {
    return { port: (await door.listen(host, port ?? DEFAULT_PORT)).port, moved: false };
  } catch (cause) {
    const taken = errnoOf(cause) === "EADDRINUSE";
    if (taken && port === undefined) return { port: (await door.listen(host, 0)).port, moved: true };
    const why = taken ? "something else listens there" : String(cause);
    throw new LaboroError("LABORO_BAD_INPUT", `cannot listen on ${host}:${port ?? DEFAULT_PORT}: ${why}`, { cause });
  }
}

async function roomIn(dir: string): Promise<{ free: number; total: number }> {
  const { bavail, blocks, bsize } = await statfs(dir);
  return { free: bavail * bsize, total: blocks * bsize };
}

const isWildcard = (host: string): boolean => host === "0.0.0.0" || host === "::" || host === "";

async function shown(certificates: Certificates, log: Log): ReturnType<Certificates["shown"]> {
  try {
    return await certificates.shown();
  } catch (cause) {
    log.error({ error: String(cause) }, "there is no certificate for who speaks TLS");
    throw cause;
  }
}
