/**
 * Drives the allocators: looks at the batch system and at the waiting work, and does what decide.ts says. In a group one broker does it, which
 * has the lease; the others take over when it ends. The states of the driver:
 *
 *   idle      there is no allocator: no timer runs, nothing is asked
 *   waiting   until the next look: a timer, or a moment after work has come or workers have changed
 *   looking   one look is under way. What happens meanwhile is looked at after it
 *
 * Every change of an allocator is a conditional write of its row, so that operations and drivers do not overwrite each other. An allocation
 * is recorded before the batch system is asked for it: a broker that ends in between finds its job again.
 */
import { now as monotonicNow } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import {
  ALLOCATOR_BUCKET,
  type Allocator,
  type AllocatorState,
  allocationOfTags,
  isLive,
  type LogLine,
  workerName,
} from "../../model/allocation.js";
import type { JobId } from "../../model/ids.js";
import type { Core } from "../core.js";
import { NamedLease } from "../group/membership.js";
import type { WorkerView } from "../operations/workers.js";
import { asBatchError, type BatchError, type BatchManager, type QueueEntry } from "./batch-manager.js";
import type { AllocationRules } from "./decide.js";
import type { Demand } from "./demand.js";

/** What the driver needs of the broker around the core. */
export interface AllocationHost {
  joinUrl(): string;
  readonly rules?: Partial<AllocationRules>;
  readonly manager?: BatchManager;
}

/** Work that came is looked at after this time: idle workers take theirs first. */
const WAKE_MS = 200;
/** The next look waits for so many times the duration of the last one, at most until the usual time; squeue for as long as it took. */
const COST_FACTOR = 20;
const TRIES = 20;
const LEASE_POLLS = 6;
/** A broker without the commands of the batch system leaves a free lease to others for so long. */
const YIELD_POLLS = 3;
const WAKING = ["job-added", "job-released", "job-due", "job-rerun", "job-ended", "worker-joined", "worker-left"];

/** What is used of this folder. Loaded with the first allocator. */
interface Parts {
  readonly decide: typeof import("./decide.js");
  readonly demand: typeof import("./demand.js");
  readonly files: typeof import("./slurm.js");
  readonly manager: BatchManager;
  readonly rules: AllocationRules;
}

interface Row extends Allocator {
  readonly version: number;
}

export class Allocators {
  readonly counts = { asked: 0, failed: 0, cancelled: 0 };
  /** As they were last read. */
  known: readonly Allocator[] = [];
  readonly #core: Core;
  readonly #log: Log;
  /** In a group, the broker that has it drives. */
  readonly #lease: NamedLease;
  #host: AllocationHost | undefined;
  #parts: Promise<Parts> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #looking: Promise<void> | undefined;
  #again = false;
  #stopped = false;
  /** When the batch system is looked at next, and since when it has been without a break. */
  #nextView = 0;
  #watchingSince: number | undefined;
  /** Why the last look at it gave nothing. */
  #unseen: BatchError | undefined;

  constructor(core: Core, log: Log) {
    this.#core = core;
    this.#log = log;
    this.#lease = new NamedLease(core, "allocators");
    core.events.onAdded(({ kind }) => {
      if (this.known.length > 0 && WAKING.includes(kind)) this.#schedule(WAKE_MS);
    });
  }

  start(host: AllocationHost): void {
    this.#host = host;
    this.look();
  }

  /** Looks now: an allocator was changed here, or at another broker. */
  look(): void {
    this.#schedule(0);
  }

  /** A request that is under way is found again by the next broker. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  parts(): Promise<Parts> {
    this.#parts ??= (async () => {
      const [decide, demand, files, { Slurm }] = await Promise.all([
        import("./decide.js"),
        import("./demand.js"),
        import("./slurm.js"),
        import("./slurm.js"),
      ]);
      const rules = { ...decide.ALLOCATION_RULES, ...this.#host?.rules };
      return { decide, demand, files, rules, manager: this.#host?.manager ?? new Slurm() };
    })();
    return this.#parts;
  }

  joinUrl(): string {
    if (this.#host === undefined) throw new LaboroError("LABORO_BROKER_STOPPING", "this broker has not started yet");
    return this.#host.joinUrl();
  }

  get identity(): string {
    return this.#core.storeAge.identity;
  }

  async list(): Promise<readonly Row[]> {
    const rows = (await this.#core.store.keyValues(ALLOCATOR_BUCKET)).map(({ key, value, version }) => ({
      ...(JSON.parse(value) as Pick<Allocator, "spec" | "state">),
      ...{ name: key, version },
    }));
    this.known = rows;
    return rows;
  }

  async find(name: string): Promise<Row | undefined> {
    return (await this.list()).find((one) => one.name === name);
  }

  /** Changes an allocator; `change` is called again where somebody else has changed it meanwhile. Undefined removes it. */
  async change(
    name: string,
    change: (found: Allocator | undefined, now: number) => Pick<Allocator, "spec" | "state"> | undefined,
  ): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const found = await this.find(name);
      const before = [...(found?.state.log ?? [])];
      if (await this.#save(name, found?.version ?? 0, before, change(found, Date.now()))) return;
    }
    throw new LaboroError("LABORO_INTERNAL", `allocator ${name} is being changed all the time`);
  }

  async #save(
    name: string,
    version: number,
    before: readonly LogLine[],
    next: Pick<Allocator, "spec" | "state"> | undefined,
  ): Promise<boolean> {
    const value = next === undefined ? null : JSON.stringify({ spec: next.spec, state: next.state });
    const { stored } = await this.#core.put(ALLOCATOR_BUCKET, name, value, version);
    if (!stored || next === undefined) return stored;
    const known = new Set(before);
    for (const line of next.state.log) {
      if (known.has(line)) continue;
      const { kind, text, allocation } = line;
      const which = allocation === undefined ? name : `${name}.${allocation}`;
      this.#core.events.add({ kind: "allocator-log", allocator: name, message: `${which}: ${kind}: ${text}` });
      if (kind === "asked") this.counts.asked++;
      if (kind === "cancelled") this.counts.cancelled++;
      if (kind === "failed" || kind === "refused") {
        this.counts.failed++;
        this.#log.warn({ allocator: name }, `allocation ${which}: ${text}`);
      }
    }
    return true;
  }

  /** What waits now that workers could do. In a group less what runs at other brokers. */
  async demand(): Promise<Demand[]> {
    const { demand } = await this.parts();
    const elsewhere = new Map<string, number>();
    for (const { pool, tasks } of await this.#workersElsewhere())
      elsewhere.set(pool, (elsewhere.get(pool) ?? 0) + tasks);
    return demand.demandOf(this.#core.state, (job) => this.#core.jobs.countersOf(job), elsewhere);
  }

  /** What allocators of its pool do about the waiting tasks of a job; undefined where none waits, or there is no allocator. */
  async explain(id: JobId): Promise<string | undefined> {
    const open = this.#core.state.jobs.get(id);
    const all = this.#core.store.shared ? await this.list() : this.known;
    const rows = all.filter(({ spec }) => spec.pool === open?.signature.requirement.pool);
    if (open === undefined || rows.length === 0) return undefined;
    const { decide, demand, rules } = await this.parts();
    if (demand.waitingTasks(this.#core.state, open, this.#core.jobs.countersOf(id)) <= 0) return undefined;
    const { requirement, timeNeededMs: timeMs = 0 } = open.signature;
    const answers = rows.map((row) => ({ row, unfit: demand.whyUnfit(row.spec, { requirement, timeMs }) }));
    const fitting = answers.filter(({ unfit }) => unfit === undefined);
    const texts =
      fitting.length > 0
        ? fitting.map(({ row }) => `allocator ${row.name} ${decide.statusText(row, rules, Date.now())}`)
        : answers.map(({ row, unfit }) => `allocator ${row.name} asks for nothing: ${unfit}`);
    return texts.slice(0, 3).join("; ");
  }

  async #workersElsewhere(): Promise<readonly WorkerView[]> {
    const answers = (await this.#core.peers?.askAll<{ workers: WorkerView[] }>("peer.workers", {})) ?? [];
    return answers.flatMap(({ answer }) => answer.workers.filter(({ connected }) => connected));
  }

  /** The names of the workers of each allocation of this allocator that are connected. */
  async workersOf(allocator: string): Promise<Map<number, { readonly names: string[]; ended: number }>> {
    const found = new Map<number, { readonly names: string[]; ended: number }>();
    const add = (tags: readonly string[], name: string, results: number): void => {
      const allocation = allocationOfTags(tags);
      if (allocation?.name !== allocator) return;
      const before = found.get(allocation.number) ?? { names: [], ended: 0 };
      before.names.push(name);
      before.ended += results;
      found.set(allocation.number, before);
    };
    const { workers, standings } = this.#core.state;
    for (const { profile, connected } of workers.values())
      if (connected) add(profile.tags, profile.name, standings.get(profile.name)?.results ?? 0);
    for (const { tags, name, stats } of await this.#workersElsewhere()) add(tags, name, stats.results);
    return found;
  }

  #schedule(ms: number): void {
    if (this.#stopped || this.#host === undefined) return;
    if (this.#looking !== undefined) {
      this.#again = true;
      return;
    }
    const at = monotonicNow() + ms;
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#again = false;
      const begun = monotonicNow();
      this.#looking = this.#look()
        .catch((cause: unknown) => {
          const { code, message } = asLaboroError(cause);
          if (!this.#stopped) this.#log.warn({ code }, `cannot look after the allocators: ${message}`);
        })
        .then(async () => {
          this.#looking = undefined;
          if (this.known.length === 0 && !this.#again) return;
          const { pollMs } = (await this.parts()).rules;
          const cost = (monotonicNow() - begun) * COST_FACTOR;
          this.#schedule(this.#again ? Math.max(WAKE_MS, Math.min(cost, pollMs)) : pollMs);
        });
    }, ms).unref();
  }

  async #look(): Promise<void> {
    const rows = await this.list();
    if (rows.length === 0 || this.#core.refusing !== undefined) return;
    const parts = await this.parts();
    const { manager, rules } = parts;
    // A broker without the commands takes it where no other does, to say what is missing.
    const yieldMs = manager.available() ? 0 : rules.pollMs * YIELD_POLLS;
    if (!(await this.#lease.take(rules.pollMs * LEASE_POLLS, yieldMs))) {
      this.#watchingSince = undefined;
      return;
    }
    const before = rows.map(({ state }) => ({ text: JSON.stringify(state), log: [...state.log] }));
    const jobs = await this.#view(rows, parts);
    const strays: string[] = [];
    for (const row of rows) strays.push(...(await this.#observe(row, jobs, parts)));
    const waits = this.#unseen === undefined && this.#core.state.halted === undefined;
    const asks = waits ? parts.decide.plan(rows, await this.demand(), parts.rules, Date.now()) : undefined;
    for (const [at, row] of rows.entries()) {
      if (JSON.stringify(row.state) === before[at]?.text) continue;
      if (await this.#save(row.name, row.version, before[at]?.log ?? [], row)) continue;
      // Somebody has changed it meanwhile: all of this is looked at again.
      this.#again = true;
      return;
    }
    if (asks === undefined) return;
    await this.#cancel(rows, strays, parts);
    for (const [name, count] of asks)
      for (let asked = 0; asked < count && !this.#stopped; asked++) if (!(await this.#ask(name, parts))) break;
    for (const { name, state } of rows)
      if (state.removing !== undefined && isEmpty(state)) await this.#remove(name, parts);
  }

  /** The jobs of the batch system by script; undefined if it was not asked this time, or did not answer. */
  async #view(
    rows: readonly Allocator[],
    { decide, manager, rules }: Parts,
  ): Promise<Map<string, QueueEntry> | undefined> {
    const live = rows.filter(({ state }) => state.allocations.some(isLive));
    if (live.length === 0) this.#unseen = undefined;
    if (live.length === 0 || monotonicNow() < this.#nextView) return undefined;
    const begun = monotonicNow();
    try {
      const entries = await manager.list(live.map(({ name }) => name));
      this.#unseen = undefined;
      this.#watchingSince ??= Date.now();
      for (const { state } of live) decide.answering(state, Date.now());
      return new Map(entries.map((entry) => [entry.script, entry]));
    } catch (cause) {
      this.#unseen = cause as BatchError;
      this.#watchingSince = undefined;
      for (const { state } of live) decide.trouble(state, rules, Date.now(), this.#unseen);
      return undefined;
    } finally {
      const cost = Math.min(rules.maxTroubleMs, (monotonicNow() - begun) * COST_FACTOR);
      this.#nextView = begun + Math.max(rules.pollMs * 0.9, cost);
    }
  }

  async #observe(
    row: Row,
    jobs: Map<string, QueueEntry> | undefined,
    { decide, files, rules }: Parts,
  ): Promise<readonly string[]> {
    const { name, spec, state } = row;
    const workers = await this.workersOf(name);
    const known = new Set(state.allocations.map(({ number }) => number));
    const path = (number: number): string => files.filesOf(spec, this.identity, name, number).script;
    const own = path(0).slice(0, -"0/job.sh".length);
    const mine = jobs && new Map([...jobs].filter(([script]) => script.startsWith(own)));
    const watchingSince = this.#watchingSince ?? Date.now();
    const lastLine = (number: number) => files.lastLine(spec, this.identity, name, number);
    const useful = (number: number): boolean | undefined => {
      const names = Array.from({ length: spec.nodes }, (_, at) => workerName(name, number, spec.nodes, at));
      const ended = names.some((one) => (this.#core.state.standings.get(one)?.results ?? 0) > 0);
      // What a worker that has left did at another broker is not known here.
      return ended || (workers.get(number)?.ended ?? 0) > 0 || (this.#core.store.shared ? undefined : false);
    };
    const connected = new Set(workers.keys());
    const seen = { jobs: mine, scriptOf: path, workers: connected, useful, watchingSince, lastLine };
    const strays = decide.observe(row, seen, rules, Date.now());
    try {
      for (const number of known)
        if (!state.allocations.some((one) => one.number === number))
          files.removeFiles(spec, this.identity, name, number);
      if (state.allocations.some(isLive)) files.writeJoinUrl(spec, this.identity, this.joinUrl());
    } catch (cause) {
      this.#log.warn({ allocator: name }, `the files of its allocations: ${asLaboroError(cause).message}`);
    }
    return strays;
  }

  /** Also those that an earlier look has marked: a cancel may have failed. */
  async #cancel(rows: readonly Allocator[], strays: readonly string[], { manager }: Parts): Promise<void> {
    const marked = rows.flatMap(({ state }) =>
      state.allocations.filter((one) => one.cancelling && isLive(one)).flatMap(({ id }) => id ?? []),
    );
    const ids = [...marked, ...strays];
    if (ids.length === 0) return;
    await manager.cancel(ids).catch((cause: BatchError) => {
      this.#log.warn({ kind: cause.kind }, `cannot cancel allocations, it is tried again: ${cause.message}`);
    });
    // What it made of them is looked at soon.
    this.#nextView = 0;
  }

  /** Asks for one allocation. Returns whether another one may be asked for. */
  async #ask(name: string, { decide, files, manager, rules }: Parts): Promise<boolean> {
    let asked: { readonly spec: Allocator["spec"]; readonly number: number } | undefined;
    await this.change(name, (found, now) => {
      asked = undefined;
      // It may have been paused, removed or changed since.
      if (found === undefined || decide.whyNoMore(found, rules, now) !== undefined) return found;
      asked = { spec: found.spec, number: decide.addAllocation(found.state, now).number };
      return found;
    });
    if (asked === undefined) return false;
    const { spec, number } = asked;
    const answer = await (async () => {
      files.writeFiles(spec, this.identity, name, number, this.joinUrl());
      return manager.ask(files.requestFor(spec, this.identity, name, number));
    })().catch((cause: unknown) => asBatchError(cause));
    await this.change(name, (found, now) => {
      if (found !== undefined) decide.onAnswer(found.state, number, answer, rules, now);
      return found;
    });
    if (typeof answer !== "string" && answer.kind !== "lost") files.removeFiles(spec, this.identity, name, number);
    return typeof answer === "string";
  }

  async #remove(name: string, { files }: Parts): Promise<void> {
    await this.change(name, (found) => {
      if (found === undefined || found.state.removing === undefined || !isEmpty(found.state)) return found;
      for (const { number } of found.state.allocations.filter((one) => !isLive(one)))
        files.removeFiles(found.spec, this.identity, name, number);
      return undefined;
    });
  }
}

/** Nothing of it is queued; with `all`, nothing runs. */
const isEmpty = ({ allocations, removing }: AllocatorState): boolean =>
  !allocations.some((one) => isLive(one) && (removing === "all" || one.state !== "running"));
