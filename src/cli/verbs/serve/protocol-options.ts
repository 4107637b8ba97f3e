/** The options of `serve` about doors of old protocols. */
import { type Command, InvalidArgumentError } from "commander";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { LISTENER_NAMES, type ListenerSettings } from "../../../broker/listeners/listener.js";
import { type ListenerRequest, parseListener } from "../../../broker/listeners/requested.js";
import type { ServerOptions } from "../../../broker/options.js";
import { parseDuration } from "../../lib/duration.js";
import { collect } from "../../lib/long-running.js";

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
      "--door <name[=addr[:port,…]]>",
      `open a door for an old protocol: ${LISTENER_NAMES.join(", ")} or all; may be repeated`,
      collectProtocols,
      [],
    )
    .option(
      "--pool <[door=]name>",
      "the pool of workers that come in by these doors, or by one; may be repeated",
      collect,
      [],
    )
    .option("--insecure", "open doors that ask nobody who they are to other machines, too")
    .option("--curve", "round-robin, scale0: let in only who has a key, see laboro keys")
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

/** What the broker is told of its doors; `dir` is the data directory. */
export async function listenerOptions(
  options: ProtocolOptions,
  dir: string,
): Promise<Pick<ServerOptions, "doors" | "insecure" | "doorSettings">> {
  const { protocol: door, pool, insecure = false } = options;
  return { doors: assignPools(door, pool), insecure, doorSettings: await listenerSettings(options, dir) };
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

/** `NAME` is for every door, `DOOR=NAME` for one. */
function assignPools(listeners: readonly ListenerRequest[], pools: readonly string[]): readonly ListenerRequest[] {
  for (const pool of pools) {
    const [door, name] = pool.split("=", 2);
    if (name === undefined || listeners.some((one) => one.name === door)) continue;
    throw new LaboroError("LABORO_BAD_INPUT", `--pool ${pool}: door ${door} is not open, see --door`);
  }
  return listeners.map((door) => {
    const pool = pools.findLast((one) => one.startsWith(`${door.name}=`))?.slice(door.name.length + 1);
    return pool === undefined ? door : { ...door, pool };
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
