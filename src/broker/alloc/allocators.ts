/**
 * Drives the allocators: reads the state of the batch system and the waiting work, and does what decide.ts says. In a
 * group, the broker with the lease does it; another takes over when it ends. The states of the driver:
 *
 *   idle      there is no allocator: no timer runs
 *   waiting   for the next look: a timer, or a moment after new work or a change of workers
 *   looking   one look is in progress. Changes meanwhile are handled after it
 *
 * Every change of an allocator is a conditional write of its row, so that operations and drivers do not overwrite each
 * other. An allocation is recorded before the batch system is asked for it: a broker that ends in between finds its job
 * again.
 */
import { now as monotonicNow } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import {
  ALLOCATOR_BUCKET,
  type Allocation,
  type Allocator,
  type AllocatorState,
  isLive,
  type LogLine,
  workerName,
} from "../../model/allocation.js";
import type { JobId } from "../../model/ids.js";
import type { Core } from "../core.js";
import { NamedLease } from "../group/membership.js";
import type { AllocationFiles } from "./allocation-files.js";
import { workersElsewhere, workersOf } from "./allocation-workers.js";
import { asBatchError, BATCH_MANAGERS, type BatchError, type QueueEntry } from "./batch-manager.js";
import type { AllocationRules } from "./decide.js";
import type { Demand } from "./demand.js";
import type { QueueWatch } from "./queue-watch.js";

/** What the driver needs of the broker around the core. */
export interface AllocationHost {
  joinUrl(): string;
  readonly rules?: Partial<AllocationRules>;
}

/** New work is considered after this time, so that idle workers take it first. */
const WAKE_MS = 200;
/** The pause before the next look, as a multiple of the duration of the last one, at most the usual time. */
const COST_FACTOR = 20;
const TRIES = 20;
const LEASE_POLLS = 6;
/** A broker without the commands of the batch system leaves a free lease to others for this many polls. */
const YIELD_POLLS = 3;
const WAKING = ["job-added", "job-released", "job-due", "job-rerun", "job-ended", "worker-joined", "worker-left"];

/** Modules of this folder, loaded with the first allocator. */
interface Parts {
  readonly decide: typeof import("./decide.js");
  readonly plan: typeof import("./plan.js");
  readonly demand: typeof import("./demand.js");
  readonly script: typeof import("./job-script.js");
  readonly filesOf: (allocator: Pick<Allocator, "name" | "spec">) => AllocationFiles;
  readonly defaultDirectory: () => string;
  readonly watches: Readonly<Record<Allocator["spec"]["manager"], QueueWatch>>;
  readonly rules: AllocationRules;
}

interface Row extends Allocator {
  readonly version: number;
}

interface RemovedRow extends Pick<Row, "name" | "version"> {
  readonly next: number;
}

export class AllocatorDriver {
  readonly counts = { asked: 0, failed: 0, cancelled: 0 };
  /** As they were last read. */
  known: readonly Allocator[] = [];
  readonly #core: Core;
  readonly #log: Log;
  /** In a group, only the broker with this lease drives the allocators. */
  readonly #lease: NamedLease;
  #host: AllocationHost | undefined;
  #parts: Promise<Parts> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #looking: Promise<void> | undefined;
  #again = false;
  #stopped = false;

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

  /** A request in progress is found again by the next broker. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  parts(): Promise<Parts> {
    this.#parts ??= (async () => {
      const [decide, plan, demand, script, { AllocationFiles, defaultDirectory }, { QueueWatch }] = await Promise.all([
        import("./decide.js"),
        import("./plan.js"),
        import("./demand.js"),
        import("./job-script.js"),
        import("./allocation-files.js"),
        import("./queue-watch.js"),
      ]);
      const rules = { ...decide.ALLOCATION_RULES, ...this.#host?.rules };
      const managers = Object.entries(BATCH_MANAGERS).map(async ([name, open]) => [
        name,
        new QueueWatch(await open(), rules),
      ]);
      const watches = Object.fromEntries(await Promise.all(managers)) as Parts["watches"];
      const filesOf: Parts["filesOf"] = ({ name, spec }) =>
        new AllocationFiles(spec.dir, this.#core.storeAge.identity, name);
      return { decide, plan, demand, script, filesOf, defaultDirectory, watches, rules };
    })();
    return this.#parts;
  }

  joinUrl(): string {
    if (this.#host === undefined) throw new LaboroError("LABORO_BROKER_STOPPING", "this broker has not started yet");
    return this.#host.joinUrl();
  }

  async list(): Promise<readonly Row[]> {
    const rows = (await this.#rows()).filter((row) => "spec" in row);
    this.known = rows;
    return rows;
  }

  /** A removed allocator keeps the number of its next allocation: running allocations and workers keep theirs. */
  async #rows(): Promise<readonly (Row | RemovedRow)[]> {
    return (await this.#core.store.keyValues(ALLOCATOR_BUCKET)).map(({ key, value, version }) => ({
      ...(JSON.parse(value) as Row | RemovedRow),
      ...{ name: key, version },
    }));
  }

  async find(name: string): Promise<Row | undefined> {
    return (await this.list()).find((one) => one.name === name);
  }

  /** Changes an allocator. `change` is called again if another broker changed it meanwhile. Undefined removes it. */
  async change(
    name: string,
    change: (found: Allocator | undefined, now: number, next: number) => Pick<Allocator, "spec" | "state"> | undefined,
  ): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const row = (await this.#rows()).find((one) => one.name === name);
      const found = row !== undefined && "spec" in row ? row : undefined;
      const next = found?.state.next ?? (row as RemovedRow | undefined)?.next ?? 1;
      const before = [...(found?.state.log ?? [])];
      const changed = change(found, Date.now(), next);
      if (found === undefined && changed === undefined) return;
      if (await this.#save(name, row?.version ?? 0, before, changed ?? { next })) return;
    }
    throw new LaboroError(
      "LABORO_INTERNAL",
      `allocator ${name}: others changed it ${TRIES} times meanwhile; look at it and try again`,
    );
  }

  async #save(
    name: string,
    version: number,
    before: readonly LogLine[],
    next: Pick<Allocator, "spec" | "state"> | Pick<RemovedRow, "next">,
  ): Promise<boolean> {
    const value = JSON.stringify("spec" in next ? { spec: next.spec, state: next.state } : next);
    const { stored } = await this.#core.put(ALLOCATOR_BUCKET, name, value, version);
    if (!stored || !("spec" in next)) return stored;
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

  /** The waiting work that no worker has. In a group, without tasks that workers of other brokers have. */
  async demand(): Promise<Demand[]> {
    const { demand } = await this.parts();
    const elsewhere = new Map<string, number>();
    for (const { pool, tasks } of await workersElsewhere(this.#core))
      elsewhere.set(pool, (elsewhere.get(pool) ?? 0) + tasks);
    return demand.demandOf(this.#core.state, (job) => this.#core.jobs.countersOf(job), elsewhere);
  }

  /** What allocators of its pool do about a job's waiting tasks. Undefined if none waits, or without allocator. */
  async explain(id: JobId): Promise<string | undefined> {
    const open = this.#core.state.jobs.get(id);
    const all = this.#core.store.shared ? await this.list() : this.known;
    const rows = all.filter(({ spec }) => spec.pool === open?.signature.requirement.pool);
    if (open === undefined || rows.length === 0) return undefined;
    const { plan, demand, rules } = await this.parts();
    if (demand.waitingTasks(this.#core.state, open, this.#core.jobs.countersOf(id)) <= 0) return undefined;
    const { requirement, timeNeededMs: timeMs = 0 } = open.signature;
    const answers = rows.map((row) => ({ row, unfit: demand.whyUnfit(demand.offerOf(row), { requirement, timeMs }) }));
    const fitting = answers.filter(({ unfit }) => unfit === undefined);
    const texts =
      fitting.length > 0
        ? fitting.map(({ row }) => `allocator ${row.name} ${plan.statusText(row, rules, Date.now())}`)
        : answers.map(({ row, unfit }) => `allocator ${row.name} asks for nothing: ${unfit}`);
    return texts.slice(0, 3).join("; ");
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
          if (!this.#stopped) this.#log.warn({ code }, `cannot check the allocators: ${message}`);
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
    const { plan, rules, watches } = parts;
    const used = Object.entries(watches).filter(([name]) => rows.some(({ spec }) => spec.manager === name));
    // A broker without the commands takes the lease if no other does, to report what is missing.
    const yieldMs = used.some(([, { manager }]) => manager.available()) ? 0 : rules.pollMs * YIELD_POLLS;
    if (!(await this.#lease.take(rules.pollMs * LEASE_POLLS, yieldMs))) {
      for (const watch of Object.values(watches)) watch.interrupt();
      return;
    }
    const before = rows.map(({ state }) => ({ text: JSON.stringify(state), log: [...state.log] }));
    const strays: (readonly [QueueWatch, string])[] = [];
    for (const [name, watch] of used) {
      const own = rows.filter(({ spec }) => spec.manager === name);
      const jobs = await watch.look(own);
      for (const row of own) for (const id of await this.#observe(row, jobs, watch, parts)) strays.push([watch, id]);
    }
    const seen = rows.filter(({ spec }) => watches[spec.manager].error === undefined);
    const halted = this.#core.state.halted !== undefined;
    const asks = halted ? [] : plan.plan(seen, await this.demand(), rules, Date.now());
    for (const [at, row] of rows.entries()) {
      if (JSON.stringify(row.state) === before[at]?.text) continue;
      if (await this.#save(row.name, row.version, before[at]?.log ?? [], row)) continue;
      // It was changed meanwhile: start over.
      this.#again = true;
      return;
    }
    for (const [name, watch] of used) {
      const own = seen.filter(({ spec }) => spec.manager === name);
      const ids = strays.filter(([at]) => at === watch).map(([, id]) => id);
      await this.#cancel(own, ids, watch);
    }
    for (const [name, count] of asks)
      for (let asked = 0; asked < count && !this.#stopped; asked++) if (!(await this.#ask(name, parts))) break;
    for (const row of rows) if (row.state.removing !== undefined) await this.remove(row.name);
  }

  async #observe(
    row: Row,
    entries: readonly QueueEntry[] | undefined,
    watch: QueueWatch,
    { decide, filesOf, rules }: Parts,
  ): Promise<readonly string[]> {
    const { name, spec, state } = row;
    const workers = await workersOf(this.#core, name);
    const known = new Set(state.allocations.map(({ number }) => number));
    const files = filesOf(row);
    const jobs = entries && files.jobsOf(entries);
    const useful = (number: number): boolean | undefined => {
      const names = Array.from({ length: spec.nodes }, (_, at) => workerName(name, number, spec.nodes, at));
      const ended = names.some((one) => (this.#core.state.standings.get(one)?.results ?? 0) > 0);
      // In a group, a former worker may have ended tasks at another broker. That is not known here.
      return ended || (workers.get(number)?.ended ?? 0) > 0 || (this.#core.store.shared ? undefined : false);
    };
    const seen = {
      ...{ jobs, useful, watchedMs: watch.watchedMs },
      workers: new Map([...workers].map(([number, { names }]) => [number, names.length])),
      stateMs: (one: Allocation) => watch.stateMs(name, one),
      lastLine: (number: number) => files.lastLine(number),
    };
    const { slots: _, ...detected } = [...workers.values()].at(-1)?.total ?? {};
    if (workers.size > 0) state.detected = detected;
    const strays = decide.observe(row, seen, rules, Date.now());
    watch.record(row);
    try {
      for (const number of known) if (!state.allocations.some((one) => one.number === number)) files.remove(number);
      if (state.allocations.some(isLive)) files.writeJoinUrl(this.joinUrl());
    } catch (cause) {
      this.#log.warn(
        { allocator: name },
        `cannot write or remove the files of its allocations: ${asLaboroError(cause).message}`,
      );
    }
    return strays;
  }

  /** Also cancels allocations that were marked earlier: their cancel may have failed. */
  async #cancel(rows: readonly Allocator[], strays: readonly string[], watch: QueueWatch): Promise<void> {
    const marked = rows.flatMap(({ state }) =>
      state.allocations.filter((one) => one.cancelling && isLive(one)).flatMap(({ id }) => id ?? []),
    );
    const ids = [...marked, ...strays];
    if (ids.length === 0) return;
    await watch.manager.cancel(ids).catch((cause: BatchError) => {
      this.#log.warn({ kind: cause.kind }, `cannot cancel allocations, and tries again: ${cause.message}`);
    });
    // Shows the effect of the cancel soon.
    watch.hurry();
  }

  /** Asks for one allocation. Returns whether another one may be asked for. */
  async #ask(name: string, { decide, plan, script, filesOf, watches, rules }: Parts): Promise<boolean> {
    let asked: { readonly spec: Allocator["spec"]; readonly number: number } | undefined;
    await this.change(name, (found, now) => {
      asked = undefined;
      // It may have been paused, removed or changed since.
      if (found === undefined || plan.whyNoMore(found, rules, now) !== undefined) return found;
      asked = { spec: found.spec, number: decide.addAllocation(found.state, now).number };
      return found;
    });
    if (asked === undefined) return false;
    const { spec, number } = asked;
    const files = filesOf({ name, spec });
    const { manager } = watches[spec.manager];
    const answer = await (async () => {
      files.write(number, script.scriptText(spec, files, name, number, manager.script), this.joinUrl());
      return manager.ask(script.requestFor(spec, files, name, number));
    })().catch((cause: unknown) => asBatchError(cause));
    await this.change(name, (found, now) => {
      if (found !== undefined) decide.onAnswer(found.state, number, answer, rules, now);
      return found;
    });
    if (typeof answer !== "string" && answer.kind !== "lost") files.remove(number);
    return typeof answer === "string";
  }

  /** Removes an allocator that is marked for removal, with its files, once it has nothing in the queue. */
  async remove(name: string): Promise<void> {
    const { filesOf } = await this.parts();
    await this.change(name, (found) => {
      if (found === undefined || found.state.removing === undefined || !isEmpty(found.state)) return found;
      for (const one of found.state.allocations) if (!isLive(one)) filesOf(found).remove(one.number);
      return undefined;
    });
  }
}

/** No job is queued. If the removal includes running jobs, none runs either. */
const isEmpty = ({ allocations, removing }: AllocatorState): boolean =>
  !allocations.some((one) => isLive(one) && (removing === "all" || one.state !== "running"));
