/**
 * Workers on machines that are reached over ssh, one for each machine:
 *
 *   waiting     for its turn: only a few log in at the same time
 *   connecting  logs in, prepares the machine, starts the worker or finds one of an earlier start
 *   joined      its worker has joined the broker
 *   cut         the connection ended, or the worker did: tried again after a pause, until stop()
 *   failed      the first attempt failed; the others go on
 *   stopped     by stop()
 */
import { createHash } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { asLaboroError, type LaboroError } from "../../../base/errors.js";
import type { BrokerAccess } from "../../../protocols/laboro/broker-address.js";
import { ObjectPool } from "../../../worker/programs/object-pool.js";
import { SshConnection, type SshHost, sshFailed } from "./connection.js";
import { type Facts, RemoteMachine } from "./remote-machine.js";

/** Fewer than the 10 logins of MaxStartups, which other users need, too. */
const LOGINS = 6;
const LOOK_MS = 200;
/** How often a worker that has joined is looked at. */
const WATCH_MS = 5_000;
const JOIN_MS = 30_000;
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 30_000;
const STOP_MS = 20_000;
const FINISH_MS = 2 ** 31 - 1;

/** The worker ended as it was asked to, by `laboro stop` for example, or because there is no broker. */
const DISMISSED = /has stopped: (?:the broker asked for it|no broker has answered)/;

export type HostState = "waiting" | "connecting" | "joined" | "cut" | "failed" | "stopped";

export interface HostStatus {
  readonly host: string;
  readonly state: HostState;
  /** Name of the worker. */
  readonly worker: string;
  readonly reason?: string;
}

export interface SshWorkersOptions {
  /** The brokers and the token for workers, as reached from here. */
  readonly access: BrokerAccess;
  /** Names the broker over its restarts: a worker that was left behind is found by it. */
  readonly key: string;
  readonly stay: boolean;
  readonly archive?: string;
  readonly onChange?: (status: HostStatus, before: HostState) => void;
}

interface Machine {
  readonly host: SshHost;
  /** The id of its worker's folder there. */
  readonly id: string;
  readonly worker: string;
  /** Settled when the first attempt has joined or failed. */
  readonly first: Promise<void>;
  readonly aborter: AbortController;
  state: HostState;
  reason?: string;
  open?: OpenMachine;
}

interface OpenMachine {
  readonly remote: RemoteMachine;
  readonly facts: Facts;
}

export class SshWorkers {
  readonly #options: SshWorkersOptions;
  readonly #owner: string;
  readonly #machines = new Map<string, Machine>();
  readonly #logins = new ObjectPool<number>(Array.from({ length: LOGINS }, (_, turn) => turn));
  #access: BrokerAccess;

  constructor(options: SshWorkersOptions) {
    this.#options = options;
    this.#access = options.access;
    this.#owner = `${hostname()} ${userInfo().uid} ${options.key}`;
  }

  get statuses(): HostStatus[] {
    return [...this.#machines.values()].map(statusOf);
  }

  /** Resolves when each of them has joined or failed. A machine that has a worker already is left alone. */
  async start(hosts: readonly SshHost[]): Promise<HostStatus[]> {
    const machines = hosts.map((host) => {
      const known = this.#machines.get(host.label);
      return known !== undefined && !["failed", "stopped"].includes(known.state) ? known : this.#add(host);
    });
    await Promise.all(machines.map(({ first }) => first));
    return machines.map(statusOf);
  }

  /** The broker has another address now. */
  async setAccess(access: BrokerAccess): Promise<void> {
    this.#access = access;
    const open = [...this.#machines.values()].flatMap((machine) => (machine.state === "joined" ? [machine] : []));
    // Its worker reads the new address when the old one does not answer.
    await Promise.allSettled(open.map((machine) => this.#startWorker(machine)));
  }

  /** `finish`: workers finish their tasks first. `leave`: they continue without this connection. */
  async stop(labels: readonly string[], how: { readonly finish: boolean; readonly leave?: boolean }): Promise<void> {
    await Promise.all(
      labels.map(async (label) => {
        const machine = this.#machines.get(label);
        if (machine === undefined) return;
        const { open, state } = machine;
        const hasWorker = how.leave !== true && (state === "joined" || state === "cut" || open !== undefined);
        this.#set(machine, "stopped");
        try {
          if (!hasWorker) return;
          // The connection may have been cut, which was not noticed yet.
          const stopped = open !== undefined && state === "joined" && this.#stopWorker(machine, open, how.finish);
          if (stopped === false || !(await stopped.then(yes, no))) await this.#reconnectToStop(machine, how.finish);
        } catch {
          // The machine cannot be reached, so the worker ends when its broker has been gone for a while.
        } finally {
          machine.aborter.abort();
          // The process may end after this.
          await open?.remote.connection.close();
          this.#machines.delete(label);
        }
      }),
    );
  }

  #stopWorker({ id }: Machine, { remote, facts }: OpenMachine, finish: boolean): Promise<void> {
    return remote.stop(facts, id, finish, finish ? FINISH_MS : STOP_MS);
  }

  async #reconnectToStop(machine: Machine, finish: boolean): Promise<void> {
    machine.aborter.abort();
    await machine.open?.remote.connection.close();
    const remote = new RemoteMachine(await SshConnection.open(machine.host));
    try {
      const facts = await remote.facts();
      // It ends when its results are delivered.
      await remote.openTunnels(facts, machine.id, this.#access);
      await this.#stopWorker(machine, { remote, facts }, finish);
    } finally {
      await remote.connection.close();
    }
  }

  #add(host: SshHost): Machine {
    let settle = (): void => {};
    const first = new Promise<void>((resolve) => (settle = resolve));
    const worker = host.label
      .replace(/^.*@/, "")
      .replace(/[^\w.-]+/g, "-")
      .replace(/^-|-$/g, "");
    const id = createHash("sha256").update(`${this.#owner} ${host.label}`).digest("hex").slice(0, 12);
    const machine: Machine = { host, id, worker, first, aborter: new AbortController(), state: "waiting" };
    this.#machines.set(host.label, machine);
    void this.#keep(machine, settle);
    return machine;
  }

  async #keep(machine: Machine, settle: () => void): Promise<void> {
    const { signal } = machine.aborter;
    let pause = FIRST_PAUSE_MS;
    let everJoined = false;
    while (!signal.aborted) {
      let why: LaboroError;
      try {
        const { lost } = await this.#open(machine);
        this.#set(machine, "joined");
        settle();
        everJoined = true;
        pause = FIRST_PAUSE_MS;
        why = await lost;
        if (DISMISSED.test(why.message)) {
          this.#set(machine, "stopped", why.message);
          break;
        }
      } catch (cause) {
        why = asLaboroError(cause);
      }
      if (signal.aborted || machine.state === "stopped") break;
      await machine.open?.remote.connection.close();
      delete machine.open;
      this.#set(machine, everJoined ? "cut" : "failed", why.message);
      if (!everJoined) break;
      await sleep(pause * (0.5 + Math.random()), signal);
      pause = Math.min(MAX_PAUSE_MS, 2 * pause);
    }
    await machine.open?.remote.connection.close();
    settle();
  }

  /** Resolves when its worker has joined, with a promise of what ends this. */
  async #open(machine: Machine): Promise<{ readonly lost: Promise<LaboroError> }> {
    const { signal } = machine.aborter;
    const turn = await this.#logins.acquire(signal);
    try {
      if (machine.state !== "cut") this.#set(machine, "connecting");
      const remote = new RemoteMachine(await SshConnection.open(machine.host, signal));
      try {
        const open = { remote, facts: await remote.facts() };
        machine.open = open;
        await this.#startWorker(machine);
        await this.#joined(machine);
        return { lost: Promise.race([remote.connection.ended, this.#watch(machine)]) };
      } catch (cause) {
        // A failed first attempt leaves nothing behind.
        if (machine.state === "connecting" && machine.open !== undefined)
          await this.#stopWorker(machine, machine.open, false).catch(() => {});
        await remote.connection.close();
        throw cause;
      }
    } finally {
      this.#logins.release(turn);
    }
  }

  async #startWorker({ open, host, id, worker }: Machine): Promise<void> {
    if (open === undefined) return;
    const { remote, facts } = open;
    const { stay, archive } = this.#options;
    const files = await remote.prepare(facts, archive);
    await remote.openTunnels(facts, id, this.#access);
    const slots = host.slots === undefined ? {} : { slots: host.slots };
    await remote.start(facts, files, { access: this.#access, id, name: worker, ...slots, stay });
  }

  async #joined(machine: Machine): Promise<void> {
    const { signal } = machine.aborter;
    const deadline = Date.now() + JOIN_MS;
    for (;;) {
      const { state, said } = await this.#look(machine);
      if (state === "joined") return;
      if (state === "ended") throw sshFailed(`its worker has ended: ${said || "it printed nothing"}`);
      if (signal.aborted || Date.now() > deadline)
        throw sshFailed(`its worker has not joined within ${JOIN_MS / 1000} s: ${said || "it printed nothing"}`);
      await sleep(LOOK_MS, signal);
    }
  }

  /** Resolves when the worker has ended. */
  async #watch(machine: Machine): Promise<LaboroError> {
    const { signal } = machine.aborter;
    for (;;) {
      await sleep(WATCH_MS, signal);
      if (signal.aborted) return sshFailed("it was stopped");
      const { state, said } = await this.#look(machine);
      if (state === "ended") return sshFailed(`its worker has ended: ${said || "it printed nothing"}`);
    }
  }

  #look({ open, id }: Machine): ReturnType<RemoteMachine["look"]> {
    if (open === undefined) throw sshFailed("the connection ended");
    return open.remote.look(open.facts, id);
  }

  #set(machine: Machine, state: HostState, reason?: string): void {
    const before = machine.state;
    machine.state = state;
    if (reason === undefined) delete machine.reason;
    else machine.reason = reason;
    if (before !== state) this.#options.onChange?.(statusOf(machine), before);
  }
}

const statusOf = ({ host, state, worker, reason }: Machine): HostStatus => ({
  ...{ host: host.label, state, worker },
  ...(reason === undefined ? {} : { reason }),
});

const yes = (): boolean => true;
const no = (): boolean => false;

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(end, ms);
    function end(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    }
    if (signal.aborted) end();
    else signal.addEventListener("abort", end);
  });
}
