/** The options of `serve` about doors of old protocols. */
import { type Command, InvalidArgumentError } from "commander";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { DOOR_NAMES, type DoorSettings } from "../../../broker/listeners/door.js";
import { type DoorRequest, parseDoor } from "../../../broker/listeners/requested.js";
import type { ServerOptions } from "../../../broker/options.js";
import { parseDuration } from "../../lib/duration.js";
import { collect } from "../../lib/long-running.js";

export interface DoorOptions {
  readonly door: readonly DoorRequest[];
  readonly pool: readonly string[];
  readonly insecure?: boolean;
  readonly curve?: boolean;
  readonly identity: readonly string[];
  readonly rrService: Readonly<Record<string, string>>;
  readonly rrTimeout?: number;
}

export function addDoorOptions(command: Command): Command {
  return command
    .option(
      "--door <name[=addr[:port,…]]>",
      `open a door for an old protocol: ${DOOR_NAMES.join(", ")} or all; may be repeated`,
      collectDoors,
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
export async function doorsOf(
  options: DoorOptions,
  dir: string,
): Promise<Pick<ServerOptions, "doors" | "insecure" | "doorSettings">> {
  const { door, pool, insecure = false } = options;
  return { doors: withPools(door, pool), insecure, doorSettings: await settingsOf(options, dir) };
}

async function settingsOf(options: DoorOptions, dir: string): Promise<DoorSettings> {
  const { identity, rrService, rrTimeout } = options;
  const pool = forEveryDoor(options.pool);
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

const forEveryDoor = (pools: readonly string[]): string | undefined => pools.findLast((pool) => !pool.includes("="));

/** `NAME` is for every door, `DOOR=NAME` for one. */
function withPools(doors: readonly DoorRequest[], pools: readonly string[]): readonly DoorRequest[] {
  for (const pool of pools) {
    const [door, name] = pool.split("=", 2);
    if (name === undefined || doors.some((one) => one.name === door)) continue;
    throw new LaboroError("LABORO_BAD_INPUT", `--pool ${pool}: door ${door} is not open, see --door`);
  }
  return doors.map((door) => {
    const pool = pools.findLast((one) => one.startsWith(`${door.name}=`))?.slice(door.name.length + 1);
    return pool === undefined ? door : { ...door, pool };
  });
}

function collectDoors(text: string, before: readonly DoorRequest[]): readonly DoorRequest[] {
  try {
    return [...before, ...parseDoor(text)];
  } catch (cause) {
    throw new InvalidArgumentError(asLaboroError(cause).message);
  }
}

function collectServices(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const [, command, service] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (command === undefined || service === undefined) throw new InvalidArgumentError("expected COMMAND=SERVICE");
  return { ...before, [command]: service };
}
