/** A broker: store, dispatch and doors put together. */
import { readFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { DEFAULT_SETTINGS, type Settings } from "../dispatch/index.js";
import { errnoOf, LaboroError } from "../model/errors.js";
import type { Store } from "../store/contract.js";
import { openSqliteStore } from "../store/sqlite/index.js";
import { type Access, keptToken, writeAccess } from "./access.js";
import { Certificates } from "./certificates.js";
import { Core } from "./core.js";
import { Complaints } from "./doors/complaints.js";
import { Conversations } from "./doors/conversations.js";
import type { DoorSettings } from "./doors/door.js";
import { type DoorRequest, type OpenedDoor, openDoors, refuseOpenDoors } from "./doors/index.js";
import { Entry } from "./entry.js";
import type { BrokerInGroup, GroupOptions } from "./group/index.js";
import { inUrl, joinUrl } from "./join-url.js";
import { type Log, SILENT } from "./log.js";
import { isLoopback } from "./loopback.js";
import { MainDoor } from "./main-door.js";
import { ownName } from "./own-name.js";
import { keepWithin, type Retention } from "./retention.js";
import type { Role } from "./roles.js";
import { keptTokens } from "./tokens.js";

export interface BrokerOptions {
  /** The data directory. */
  readonly dir: string;
  /** The address to listen on; 127.0.0.1 if absent. Any that other machines can reach means TLS. */
  readonly host?: string;
  /** 0 takes any free port. If absent it is 5429, or any free one where that is taken. */
  readonly port?: number;
  /** Names and addresses under which other machines reach this one; the first goes into the join URL. */
  readonly advertise?: readonly string[];
  /** `auto`: on loopback a certificate is made when somebody speaks TLS, elsewhere at once. `off` goes with loopback only. */
  readonly tls?: "auto" | "on" | "off";
  /** The admin's. */
  readonly token?: string;
  readonly heartbeatMs?: number;
  /** How long a connection to the main door may take to send its headers; 10 s if absent. */
  readonly headersTimeoutMs?: number;
  readonly settings?: Partial<Settings>;
  /** Doors for the old protocols; none if absent. */
  readonly doors?: readonly DoorRequest[];
  /** Doors without authentication may be opened to other machines. */
  readonly insecure?: boolean;
  readonly doorSettings?: DoorSettings;
  /** How long and how much of what has ended is kept; all of it if absent. */
  readonly retention?: Retention;
  readonly allowNetworkFilesystem?: boolean;
  /** What it keeps in the data directory survives its own end, but the last of it not that of the machine: for who has the results elsewhere. */
  readonly relaxed?: boolean;
  /** For several brokers: the URL of a PostgreSQL database, or how to open a store that others share. In the data directory if absent. */
  readonly store?: string | (() => Store);
  /** How long the others wait for a sign of this broker before they take it for dead; 10 s if absent. */
  readonly leaseMs?: number;
  /** Open the doors only while no other broker is there. */
  readonly fallback?: boolean;
  /** The doors are open: at first, and each time that this broker opens anew. */
  readonly onOpened?: () => void;
  /** A fallback stands by: at first, and each time that it steps back. */
  readonly onStandby?: () => void;
  readonly log?: Log;
  /** The store has failed for good, or the like: the broker can only be stopped. */
  readonly onFailed?: (cause: LaboroError) => void;
}

export interface Broker {
  readonly url: string;
  /** The admin's. */
  readonly token: string;
  /** SHA-256 of the CA's certificate, where the URL is https. */
  readonly ca?: string | undefined;
  readonly core: Core;
  /** The default port was taken, and this one was used instead. */
  readonly moved: boolean;
  /** Those beside the main one. */
  readonly doors: readonly OpenedDoor[];
  tokenOf(role: Role): string | undefined;
  /** All that somebody of this role needs to come in, in one line; a worker if absent. */
  joinUrl(role?: Role): string;
  /** A link that lets a browser in once. */
  newEntry(role?: Role): { readonly code: string; readonly url: string; readonly expires: number };
  /** In order: doors closed, decisions on disk, store closed. Workers keep their tasks for the next start. */
  stop(): Promise<void>;
}

export const DEFAULT_PORT = 5429;
const DEFAULT_HEARTBEAT_MS = 2_000;
const OUTPUT_WINDOW = 1024 * 1024;

export async function startBroker(options: BrokerOptions): Promise<Broker> {
  if (options.store !== undefined) return (await import("./group/lives.js")).startInGroup(options, openBroker);
  return openBroker(options, {
    openStore: () => ownStore(options),
    failed: (cause) => options.onFailed?.(cause),
  });
}

/** What makes a broker one of several, or the only one. */
export interface House {
  openStore(): Store | Promise<Store>;
  /** The store has failed, or this broker's lease on it has ended. */
  failed(cause: LaboroError): void;
  readonly group?: Pick<GroupOptions, "identity" | "leaseMs" | "fallback"> & { readonly stepBack?: () => void };
}

async function openBroker(options: BrokerOptions, house: House): Promise<Broker> {
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
    const shared = house.group === undefined ? undefined : await import("./group/shared-access.js");
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
    const door = new MainDoor(core, {
      tokens,
      entry,
      face: {
        version: versionOf(),
        conversations,
        disk: () => roomIn(dir),
        doors: () => [{ name: "main", url }, ...listed(doors)],
        newEntry,
        ...(house.group?.stepBack === undefined ? {} : { stepBack: house.group.stepBack }),
      },
      conversations,
      complaints,
      doorSettings: options.doorSettings ?? {},
      log,
      broker: `broker-${core.state.epoch}`,
      heartbeatMs: options.heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
      outputWindow: OUTPUT_WINDOW,
      headersTimeoutMs: options.headersTimeoutMs,
      ...(tls === "off" ? {} : { certificate: () => shown(certificates, log) }),
    });
    if (store.group !== undefined && house.group !== undefined) {
      const { BrokerInGroup: InGroup } = await import("./group/index.js");
      group = new InGroup(core, store.group, {
        ...house.group,
        ...{ token, log, version: versionOf(), lost: house.failed },
        doors: () => [{ name: "main", url }, ...listed(doors)],
      });
    }
    const { port, moved } = await listen(door, host, options.port);
    // At once: who waited for this broker may ask already where it is.
    url = `${scheme}://${inUrl(local ? host : name)}:${port}`;
    const settings = options.doorSettings ?? {};
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

const listed = (doors: readonly OpenedDoor[]): { name: string; url: string }[] =>
  doors.flatMap(({ name, urls }) => urls.map((url) => ({ name, url })));

const ownStore = ({ dir, log = SILENT, allowNetworkFilesystem, relaxed = false }: BrokerOptions): Store =>
  openSqliteStore({
    ...{ dir, relaxed },
    log: (line) => log.warn({}, line),
    ...(allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem }),
  });

async function openCore(options: BrokerOptions, house: House, log: Log): Promise<{ core: Core; store: Store }> {
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

export function versionOf(): string {
  const file = new URL("../../package.json", import.meta.url);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
