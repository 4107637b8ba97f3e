/** `laboro doctor HOST…`: whether a worker on another machine could join, seen from here and from there. */
import { randomBytes } from "node:crypto";
import { isLoopback } from "../../../base/addresses.js";
import { shortDuration } from "../../../base/format.js";
import type { BrokerAccess } from "../../../protocols/laboro/broker-address.js";
import { parseHosts, SshConnection, type SshHost } from "../../lib/ssh/connection.js";
import { RemoteMachine } from "../../lib/ssh/remote-machine.js";
import { workerAccess } from "../../lib/ssh/run-machines.js";
import { checkClock, checkFileLimit, checkFree } from "../doctor.js";
import { type Check, fail, messageOf, ok } from "./postgres.js";

/** Logins at a time. */
const AT_ONCE = 6;
/** Nothing answers there: what matters is whether the socket is forwarded. */
const NO_BROKER = { urls: ["http://127.0.0.1:1"], token: "none", source: "" };

export async function checkHosts(words: readonly string[], access: BrokerAccess | undefined): Promise<Check[]> {
  const { hosts } = parseHosts(words);
  const found = hosts.map((): readonly Check[] => []);
  const left = hosts.entries();
  const worker = async (): Promise<void> => {
    for (const [i, host] of left) found[i] = await checkHost(host, access);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return hosts.flatMap(({ label }, i) =>
    (found[i] ?? []).map((check) => ({ ...check, message: `${label}: ${check.message}` })),
  );
}

async function checkHost(host: SshHost, access: BrokerAccess | undefined): Promise<Check[]> {
  const checks: Check[] = [];
  let connection: SshConnection | undefined;
  try {
    const asked = Date.now();
    connection = await SshConnection.open(host);
    checks.push(ok(`ssh logs in, in ${shortDuration(Date.now() - asked)}`));
    const remote = new RemoteMachine(connection);
    const facts = await remote.facts();
    checks.push(...checkFree(facts.freeKb * 1024));
    if (facts.node === undefined) {
      checks.push(fail("it has no Node 20 or newer", "install one there, or use --archive"));
      return checks;
    }
    checks.push(ok(`Node ${facts.nodeVersion} at ${facts.node}, ${facts.system}`));
    const files = await remote.prepare(facts);
    checks.push(ok(`the worker is copied to ${facts.home}`));
    const id = `doctor-${randomBytes(4).toString("hex")}`;
    const before = Date.now();
    const there = await remote.check(facts, files, id, access === undefined ? NO_BROKER : workerAccess(access));
    checks.push(...checkFileLimit(there.openFiles), clockCheck(there.clock, before, Date.now()));
    if (access === undefined) checks.push(ok("a tunnel can be opened"));
    else if (there.fault === "") checks.push(ok("the broker answers there through a tunnel, and knows the token"));
    else checks.push(fail(`through a tunnel: ${there.fault}`, "see this code in docs/reference/errors.md"));
    for (const url of access?.urls ?? [])
      if (!isLoopback(new URL(url).hostname)) checks.push(await directCheck(remote, files.node, url));
  } catch (cause) {
    checks.push(fail(messageOf(cause)));
  } finally {
    await connection?.close();
  }
  return checks;
}

/** Not needed over ssh: a worker that is started there by other means, such as Slurm, connects without a tunnel. */
async function directCheck(remote: RemoteMachine, node: string, url: string): Promise<Check> {
  const fault = await remote.connectFault(node, url);
  if (fault === "") return ok(`${url} can be reached from there without a tunnel`);
  return ok(`${url} cannot be reached from there without a tunnel (${fault}): use laboro ssh, or open the port`);
}

/** The clock was read at some time in between. */
function clockCheck(clock: number, before: number, after: number): Check {
  return checkClock(clock < before ? clock - before : Math.max(0, clock - after));
}
