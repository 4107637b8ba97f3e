/** A broker: store, dispatch and doors put together. */
import { DEFAULT_SETTINGS, type Settings } from "../dispatch/index.js";
import { errnoOf, LaboroError } from "../model/errors.js";
import type { Store } from "../store/contract.js";
import { openSqliteStore } from "../store/sqlite/index.js";
import { keptToken, writeAccess } from "./access.js";
import { Core } from "./core.js";
import { type Log, SILENT } from "./log.js";
import { MainDoor } from "./main-door.js";

export interface BrokerOptions {
  /** The data directory. */
  readonly dir: string;
  readonly host?: string;
  /** 0 takes any free port. */
  readonly port?: number;
  readonly token?: string;
  readonly heartbeatMs?: number;
  readonly settings?: Partial<Settings>;
  readonly allowNetworkFilesystem?: boolean;
  readonly log?: Log;
  /** The store has failed for good, or the like: the broker can only be stopped. */
  readonly onFailed?: (cause: LaboroError) => void;
}

export interface Broker {
  readonly url: string;
  readonly token: string;
  readonly core: Core;
  /** In order: doors closed, decisions on disk, store closed. Workers keep their tasks for the next start. */
  stop(): Promise<void>;
}

export const DEFAULT_PORT = 5429;
const DEFAULT_HEARTBEAT_MS = 2_000;
const OUTPUT_WINDOW = 1024 * 1024;

export async function startBroker(options: BrokerOptions): Promise<Broker> {
  const { dir, host = "127.0.0.1", port = DEFAULT_PORT, log = SILENT } = options;
  const store: Store = openSqliteStore({
    dir,
    log: (line) => log.warn({}, line),
    ...(options.allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem: options.allowNetworkFilesystem }),
  });
  const failed = (cause: LaboroError): void => {
    log.error({ code: cause.code }, `the store has failed: ${cause.message}`);
    options.onFailed?.(cause);
  };
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const core = await Core.open(store, settings, log, failed).catch(async (cause: unknown) => {
    await store.close();
    throw cause;
  });
  const token = options.token ?? keptToken(dir);
  const door = new MainDoor(core, {
    token,
    log,
    broker: `broker-${core.state.epoch}`,
    heartbeatMs: options.heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
    outputWindow: OUTPUT_WINDOW,
  });
  const address = await door.listen(host, port).catch(async (cause: unknown) => {
    await core.stop();
    await store.close();
    const why = errnoOf(cause) === "EADDRINUSE" ? "something else listens there" : String(cause);
    throw new LaboroError("LABORO_BAD_INPUT", `cannot listen on ${host}:${port}: ${why}`, { cause });
  });
  const url = `http://${host.includes(":") ? `[${host}]` : host}:${address.port}`;
  writeAccess(dir, { url, token });
  return {
    url,
    token,
    core,
    stop: async () => {
      await core.stop();
      await door.close();
      await store.close();
    },
  };
}
