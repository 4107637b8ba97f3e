/** The connection to the broker, and the broker itself. */

import { statSync } from "node:fs";
import { LaboroError } from "../../../base/errors.js";
import { pluralize, shortDuration } from "../../../base/format.js";
import { packageVersion } from "../../../base/package.js";
import { type BrokerChoice, connectToBroker, isConfigured, resolveBroker } from "../../lib/broker-connection.js";
import type { OperationOutput } from "../../lib/views.js";
import { type Check, fail, messageOf, ok, warn } from "./check.js";

const TIMEOUT_MS = 5_000;
/** Times in lists come from several machines: a larger difference makes them wrong. */
const CLOCK_MS = 2_000;

export async function checkBroker(choice: BrokerChoice): Promise<Check[]> {
  if (!isConfigured(choice))
    return [ok("no broker is configured: laboro run brings its own; laboro serve starts one for many machines")];
  const file = fileNamed(choice.broker ?? process.env.LABORO_BROKER ?? "");
  return [...(file === undefined ? [] : [checkFile(file)]), ...(await checkLink(choice))];
}

async function checkLink(choice: BrokerChoice): Promise<Check[]> {
  try {
    const { urls, source } = resolveBroker(choice);
    const client = await connectToBroker(choice, TIMEOUT_MS);
    try {
      const asked = Date.now();
      const status = await client.ask("status", {});
      const took = Date.now() - asked;
      const here = asked + took / 2;
      return [
        ok(`the broker at ${urls.join(", ")} answers in ${shortDuration(took)} (found by ${source})`),
        checkVersion(status.version),
        checkClock(status.started + status.uptimeMs - here),
        checkWorkers(status),
      ];
    } finally {
      client.close();
    }
  } catch (cause) {
    return [fail(messageOf(cause), remedyFor(cause))];
  }
}

function checkWorkers({ refusing, workers, slots }: OperationOutput<"status">): Check {
  if (refusing !== undefined)
    return fail(`it takes nothing new: ${refusing.message}`, `see ${refusing.code} in docs/reference/errors.md`);
  if (workers.connected === 0) return warn("it has no worker, so that nothing can run", "start one: laboro worker");
  return ok(`it has ${pluralize(workers.connected, "worker")} with ${pluralize(slots.total, "slot")}`);
}

function checkVersion(version: string): Check {
  const own = packageVersion();
  if (version === own) return ok(`it is laboro ${version}, as here`);
  return warn(
    `it is laboro ${version}, here is ${own}`,
    "both ends need the same version of the link; update the older one",
  );
}

function checkClock(difference: number): Check {
  const offset = Math.abs(difference);
  const what = `its clock is ${shortDuration(offset)} ${difference < 0 ? "behind" : "ahead of"} this one`;
  if (offset < CLOCK_MS) return ok("its clock agrees with this one");
  return warn(what, "set both by NTP: times in lists are wrong otherwise");
}

function remedyFor(cause: unknown): string | undefined {
  const code = cause instanceof LaboroError ? cause.code : undefined;
  if (code === "LABORO_BAD_TOKEN") return "its token is another one: take the join URL or access.json again";
  if (code === "LABORO_BAD_INPUT") return "correct it";
  if (messageOf(cause).includes("laboro serve")) return undefined;
  return "is it running, is the address right, and does a firewall let its port through?";
}

const fileNamed = (broker: string): string | undefined => (broker.startsWith("@") ? broker.slice(1) : undefined);

function checkFile(file: string): Check {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode;
  if (mode === undefined) return fail(`${file} is not there`, "it should hold the join URL that laboro serve printed");
  if ((mode & 0o077) === 0) return ok(`only you can read ${file}`);
  return warn(`others can read ${file}, which holds a token`, `chmod 600 ${file}`);
}
