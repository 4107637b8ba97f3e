/** The listener for runners of runexp 1.3. Its sessions share runners, assignments and the folder of experiments. */
import { randomBytes } from "node:crypto";
import { badInput } from "../../../base/errors.js";
import { keepLatest } from "../../../base/keep-latest.js";
import type { Core } from "../../../broker/core.js";
import {
  type Listener,
  type ListenerAddress,
  type ListenerContext,
  type ListenerFactory,
  openTcpListener,
} from "../../../broker/listeners/listener.js";
import { type Attempt, type JobId, type TaskIndex, taskKey, WorkerId } from "../../../model/ids.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { DEFAULT_GROUP, GROUP_PATTERN } from "../messages.js";
import type { RunnerPort } from "./runner-port.js";
import { RunnerSession, SESSION_LIMITS, type SessionLimits } from "./runner-session.js";
import { type Experiments, taskName } from "./runner-tasks.js";

export const openRunexpListener: ListenerFactory = (context, address) => openManager(context, address, {});

export interface ManagerOptions {
  readonly experiments?: Experiments;
  readonly limits?: Partial<SessionLimits>;
}

/** The same with more options, for `laboro experiments`. */
export async function openManager(
  context: ListenerContext,
  listenAddress: ListenerAddress,
  options: ManagerOptions,
): Promise<Listener> {
  const { pool } = context.settings;
  if (pool !== undefined && !GROUP_PATTERN.test(pool)) {
    throw badInput(`the pool "${pool}" cannot be a group of runexp: choose a name without blanks`);
  }
  const manager = new Manager(context, options.experiments, await markSecret(context.core));
  const limits = { ...SESSION_LIMITS, ...options.limits };
  const unsubscribe = context.core.events.onAdded(({ kind }) => {
    if (kind === "tasks-ended" || kind === "job-ended") manager.answerOpenPetos();
  });
  const listener = await openTcpListener("runexp", context, listenAddress, (socket, address, greeted) => {
    return new RunnerSession(manager, socket, address, greeted, limits);
  }).catch((cause: unknown) => {
    unsubscribe();
    throw cause;
  });
  return {
    urls: listener.urls,
    close: () => {
      unsubscribe();
      return listener.close();
    },
  };
}

export interface TaskHolder {
  readonly worker: WorkerId;
  readonly attempt: Attempt;
}

const MAX_HOSTS = 1_000;
const MAX_TASKS = 100_000;

/**
 * Which task was assigned to which host. A late result over another connection counts only from one of these hosts. A
 * host is the name of a runner (`-h`); two runners with one name are one host.
 */
class AssignmentHistory {
  readonly #hosts = new Map<string, Set<string>>();

  add(host: string, task: string): void {
    const tasks = this.#hosts.get(host) ?? new Set();
    // Moved to the end: the least recently used is removed first.
    this.#hosts.delete(host);
    this.#hosts.set(host, tasks);
    tasks.delete(task);
    tasks.add(task);
    keepLatest(tasks, MAX_TASKS);
    keepLatest(this.#hosts, MAX_HOSTS);
  }

  has(host: string, task: string): boolean {
    return this.#hosts.get(host)?.has(task) ?? false;
  }
}

const PREFIX = "runexp:";
const AREA = "runexp";
const SECRET = "mark-secret";

export class Manager {
  readonly core: Core;
  readonly context: ListenerContext;
  readonly pool: string;
  /** The pool under its name in runexp. */
  readonly group: string;
  readonly experiments: Experiments | undefined;
  /** For the marks of tasks. */
  readonly secret: string;
  readonly assignments = new AssignmentHistory();
  readonly #runners = new Map<WorkerId, RunnerPort>();
  /** Runners that had tasks before this start, by host. They reconnect with another id and do not list their tasks. */
  readonly #earlierRunners = new Map<string, WorkerId[]>();
  /** Ids of runners that are about to join. */
  readonly #joining = new Set<WorkerId>();

  constructor(context: ListenerContext, experiments: Experiments | undefined, secret: string) {
    this.context = context;
    this.core = context.core;
    this.pool = context.settings.pool ?? DEFAULT_POOL;
    this.group = this.pool === DEFAULT_POOL ? DEFAULT_GROUP : this.pool;
    this.experiments = experiments;
    this.secret = secret;
    this.#loadAssignments();
  }

  /** The tasks that runners have from before this start. */
  #loadAssignments(): void {
    for (const { profile } of this.core.workers()) {
      const host = hostOf(profile.id);
      if (host === undefined) continue;
      const claims = this.core.claimsOf(profile.id);
      if (claims.length > 0) this.#earlierRunners.set(host, [...(this.#earlierRunners.get(host) ?? []), profile.id]);
      for (const { job, first, last } of claims) {
        const open = this.core.job(job);
        for (let index = first; index <= last && open !== undefined; index++) {
          // An experiment has the first key, any other task the second.
          this.assignments.add(host, taskKey(job, index));
          this.assignments.add(host, taskName(open, index));
        }
      }
    }
  }

  /**
   * An id for a runner of this host. One from before a restart is not used again: its tasks are kept for the grace
   * period, and their results may come over the new connection.
   */
  newId(host: string): WorkerId {
    for (let number = 1; ; number++) {
      const id = WorkerId(number === 1 ? `${PREFIX}${host}` : `${PREFIX}${host}#${number}`);
      if (this.core.worker(id) !== undefined || this.#joining.has(id)) continue;
      this.#joining.add(id);
      return id;
    }
  }

  joined(runner: RunnerPort): void {
    this.#joining.delete(runner.id);
    this.#runners.set(runner.id, runner);
  }

  gone(runner: RunnerPort): void {
    this.#joining.delete(runner.id);
    if (this.#runners.get(runner.id) === runner) this.#runners.delete(runner.id);
    this.answerOpenPetos();
  }

  answerOpenPetos(): void {
    for (const runner of this.#runners.values()) runner.answerOpenPeto();
  }

  /** An unsent task may still be assigned to any runner. */
  get anyUnsent(): boolean {
    return [...this.#runners.values()].some(({ hasUnsent }) => hasUnsent);
  }

  /** Tasks from before this start without a result, of this host or of any. After the grace period they wait again. */
  hasEarlierTasks(host?: string): boolean {
    for (const [name, ids] of this.#earlierRunners) {
      const holders = ids.filter((id) => this.core.claimsOf(id).length > 0);
      if (holders.length === 0) this.#earlierRunners.delete(name);
      else if (host === undefined || host === name) return true;
    }
    return false;
  }

  /** The runner of this host that holds the claim on the task: its connection hangs, or it is from before a restart. */
  findHolder(host: string, job: JobId, index: TaskIndex, name: string): TaskHolder | undefined {
    for (const { profile } of this.core.workers()) {
      const { id } = profile;
      if (hostOf(id) !== host) continue;
      const claim = this.core.claimOf(id, job, index);
      if (claim === undefined) continue;
      this.#runners.get(id)?.forgetTask(name);
      return { worker: id, attempt: claim.attempt };
    }
    return undefined;
  }
}

function hostOf(id: WorkerId): string | undefined {
  return id.startsWith(PREFIX) ? id.slice(PREFIX.length).replace(/#\d+$/, "") : undefined;
}

/** Stored with the jobs: results may come after a restart. */
async function markSecret(core: Core): Promise<string> {
  for (;;) {
    const stored = (await core.keptTexts(AREA)).find(({ key }) => key === SECRET);
    if (stored !== undefined) return stored.value;
    // Another broker of the group may store one at the same time: the stored one counts.
    await core.put(AREA, SECRET, randomBytes(16).toString("hex"), 0);
  }
}
