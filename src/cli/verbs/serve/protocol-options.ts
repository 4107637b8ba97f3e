/** The options of `serve` about listeners of other protocols. */
import { type Command, InvalidArgumentError } from "commander";
import { asLaboroError, badInput } from "../../../base/errors.js";
import { LISTENER_NAMES, type ListenerSettings } from "../../../broker/listeners/listener.js";
import { type ListenerRequest, parseListener } from "../../../broker/listeners/listener-requests.js";
import type { ServerOptions } from "../../../broker/options.js";
import { parseDuration } from "../../lib/duration.js";
import { collect } from "../../lib/option-parsers.js";

export interface ProtocolOptions {
  readonly protocol: readonly ListenerRequest[];
  readonly pool: readonly string[];
  readonly insecure?: boolean;
  readonly curve?: boolean;
  readonly identity: readonly string[];
  readonly rrService: Readonly<Record<string, string>>;
  readonly rrTimeout?: number;
}

export function addProtocolOptions(command: Command): Command {
  return command
    .option(
      "--protocol <name[=addr[:port,…]]>",
      `accept peers of another protocol: ${LISTENER_NAMES.join(", ")} or all; may be repeated`,
      collectProtocols,
      [],
    )
    .option(
      "--pool <[protocol=]name>",
      "the pool of workers that connect by these protocols, or by one; may be repeated",
      collect,
      [],
    )
    .option("--insecure", "let other machines use protocols without authentication")
    .option("--curve", "round-robin, scale0: accept only peers with a key, see laboro keys; needs the package zeromq")
    .option(
      "--identity <url>",
      "round-robin: what peers connect to, where that is not the address; may be repeated",
      collect,
      [],
    )
    .option(
      "--rr-service <command=service>",
      "round-robin: a command, by name or as 0x0b, and the service that it is; may be repeated",
      collectServices,
      {},
    )
    .option("--rr-timeout <duration>", "round-robin: how long a request may take", parseDuration);
}

/** The broker's options about its listeners; `dir` is the data directory. */
export async function listenerOptions(
  options: ProtocolOptions,
  dir: string,
): Promise<Pick<ServerOptions, "listeners" | "insecure" | "listenerSettings">> {
  const { protocol, pool, insecure = false } = options;
  return { listeners: assignPools(protocol, pool), insecure, listenerSettings: await listenerSettings(options, dir) };
}

async function listenerSettings(options: ProtocolOptions, dir: string): Promise<ListenerSettings> {
  const { identity, rrService, rrTimeout } = options;
  const pool = defaultPool(options.pool);
  return {
    ...(pool === undefined ? {} : { pool }),
    ...(identity.length === 0 ? {} : { identities: identity }),
    ...(Object.keys(rrService).length === 0 ? {} : { services: rrService }),
    ...(rrTimeout === undefined ? {} : { requestTimeoutMs: rrTimeout }),
    ...(options.curve === true
      ? { curve: (await import("../../../broker/config/curve-keys.js")).readCurveKeys(dir) }
      : {}),
  };
}

const defaultPool = (pools: readonly string[]): string | undefined => pools.findLast((pool) => !pool.includes("="));

/** `NAME` is for every protocol, `PROTOCOL=NAME` for one. */
function assignPools(listeners: readonly ListenerRequest[], pools: readonly string[]): readonly ListenerRequest[] {
  for (const pool of pools) {
    const [protocol, name] = pool.split("=", 2);
    if (name === undefined || listeners.some((one) => one.name === protocol)) continue;
    throw badInput(`--pool ${pool}: protocol ${protocol} is not enabled, see --protocol`);
  }
  return listeners.map((listener) => {
    const pool = pools.findLast((one) => one.startsWith(`${listener.name}=`))?.slice(listener.name.length + 1);
    return pool === undefined ? listener : { ...listener, pool };
  });
}

function collectProtocols(text: string, before: readonly ListenerRequest[]): readonly ListenerRequest[] {
  try {
    return [...before, ...parseListener(text)];
  } catch (cause) {
    throw new InvalidArgumentError(asLaboroError(cause).message);
  }
}

function collectServices(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const [, command, service] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (command === undefined || service === undefined) throw new InvalidArgumentError("expected COMMAND=SERVICE");
  return { ...before, [command]: service };
}
