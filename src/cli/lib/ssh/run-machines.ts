/** The machines of `laboro run --ssh`: workers that are started when the broker is there, and end with the run. */
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { badInput, whyUnreadable } from "../../../base/errors.js";
import { storedOrNewTokens } from "../../../broker/access/tokens.js";
import { ACCESS_FILE } from "../../../client/find-broker.js";
import type { BrokerAccess } from "../../../protocols/laboro/broker-address.js";
import { printNotice } from "../print.js";
import { type NamedHosts, sshFailed } from "./connection.js";
import { type HostState, type HostStatus, SshWorkers } from "./workers.js";

/** With the worker token, if the broker was found by its data directory: other machines get no more than they need. */
export function workerAccess(access: BrokerAccess): BrokerAccess {
  if (!access.source.endsWith(ACCESS_FILE)) return access;
  const token = storedOrNewTokens(dirname(access.source)).find(({ role }) => role === "worker")?.token;
  return { ...access, token: token ?? access.token };
}

/** Throws LABORO_BAD_INPUT unless it can be read. */
export function checkArchive(archive: string | undefined): { readonly archive?: string } {
  if (archive === undefined) return {};
  try {
    const magic = readFileSync(archive).subarray(0, 2).toString("hex");
    if (magic === "1f8b") return { archive };
  } catch (cause) {
    throw badInput(`--archive: ${archive} cannot be read: ${whyUnreadable(cause)}`, cause);
  }
  throw badInput(`--archive: expected laboro-VERSION-linux-x64.tar.gz of npm run package, got ${archive}`);
}

/** A change that the user should see; undefined for an expected one. */
function changeText({ host, state, reason = "" }: HostStatus, before: HostState): string | undefined {
  if (state === "failed") return `${host} is not used: ${reason}`;
  if (state === "cut") return `${host}: ${reason}; trying again`;
  if (state === "joined" && before === "cut") return `${host} is back`;
  return state === "stopped" && reason !== "" ? `${host}: ${reason}` : undefined;
}

export class RunMachines {
  readonly hosts: NamedHosts;
  readonly #options: { readonly stay: boolean; readonly archive?: string };
  #workers: SshWorkers | undefined;

  constructor(hosts: NamedHosts, { stay = false, archive }: { readonly stay?: boolean; readonly archive?: string }) {
    this.hosts = hosts;
    this.#options = { stay, ...checkArchive(archive) };
  }

  /** Starts the workers, or tells them the new address. Resolves when each has joined or failed, or with `signal`. */
  async use(found: BrokerAccess, key: string, signal: AbortSignal): Promise<void> {
    const access = workerAccess(found);
    if (this.#workers !== undefined) return this.#workers.setAccess(access);
    const onChange = (status: HostStatus, before: HostState): void => {
      const text = changeText(status, before);
      if (text !== undefined) printNotice(text);
    };
    this.#workers = new SshWorkers({ access, key, ...this.#options, onChange });
    const interrupted = new Promise<undefined>((resolve) => signal.addEventListener("abort", () => resolve(undefined)));
    const statuses = await Promise.race([this.#workers.start(this.hosts.hosts), interrupted]);
    if (statuses === undefined) throw sshFailed("interrupted before the machines had joined; nothing was submitted");
    if (this.hosts.local === undefined && statuses.every(({ state }) => state === "failed"))
      throw sshFailed("no machine can be used; laboro doctor HOST looks closer");
  }

  async close(finish: boolean): Promise<void> {
    const labels = this.hosts.hosts.map(({ label }) => label);
    await this.#workers?.stop(labels, { finish, leave: this.#options.stay });
  }
}
