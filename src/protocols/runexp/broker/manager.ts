/** What the sessions of one listener share: the connected runners, their assignments, and the folder of experiments if there is one. */
import { randomBytes } from "node:crypto";
import { keepLatest } from "../../../base/keep-latest.js";
import type { Core } from "../../../broker/core.js";
import type { ListenerContext } from "../../../broker/listeners/listener.js";
import { type Attempt, type JobId, type TaskIndex, taskKey, WorkerId } from "../../../model/ids.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { DEFAULT_GROUP } from "../messages.js";
import type { Experiments, SentTask } from "./experiments.js";
import { assignmentKey, taskName } from "./task-packing.js";

/** A connected runner. */
export interface ConnectedRunner {
  readonly id: WorkerId;
  /** It is assigned a task that is not sent to it yet, and may return to the queue. */
  readonly hasUnsent: boolean;
  /** Something has ended, or returned to the queue: the answer to an open PETO may have changed. */
  answerOpenPeto(): void;
  /** The result of this task came by another connection of the same host. */
  forgetTask(name: string): void;
}

/** Who has a task. */
export interface TaskHolder {
  readonly worker: WorkerId;
  readonly attempt: Attempt;
}

const MAX_HOSTS = 1_000;
const MAX_TASKS = 100_000;

/**
 * Which task was assigned to which host: a result that comes late, over another connection, counts only from one of them. A host is what a
 * runner says it is (`-h`); two runners of one name are one host here.
 */
class AssignmentHistory {
  readonly #hosts = new Map<string, Set<string>>();

  add(host: string, task: string): void {
    const tasks = this.#hosts.get(host) ?? new Set();
    // The last used is last; the oldest is removed first.
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
  /** The pool, under runexp's name for the default one. */
  readonly group: string;
  readonly experiments: Experiments | undefined;
  readonly secret: string;
  readonly #assignments = new AssignmentHistory();
  readonly #runners = new Map<WorkerId, ConnectedRunner>();
  /** Ids of those that are about to join. */
  readonly #joining = new Set<WorkerId>();

  private constructor(context: ListenerContext, experiments: Experiments | undefined, secret: string) {
    this.context = context;
    this.core = context.core;
    this.pool = context.settings.pool ?? DEFAULT_POOL;
    this.group = this.pool === DEFAULT_POOL ? DEFAULT_GROUP : this.pool;
    this.experiments = experiments;
    this.secret = secret;
    this.#loadAssignments();
  }

  static async open(context: ListenerContext, experiments: Experiments | undefined): Promise<Manager> {
    return new Manager(context, experiments, await secretOf(context.core));
  }

  /** The tasks that runners have since before this broker was started. */
  #loadAssignments(): void {
    for (const { profile } of this.core.workers()) {
      const host = hostOf(profile.id);
      if (host === undefined) continue;
      for (const { job, first, last } of this.core.claimsOf(profile.id)) {
        const open = this.core.job(job);
        for (let index = first; index <= last && open !== undefined; index++) {
          // It is not known which of the two it is.
          this.#assignments.add(host, taskKey(job, index));
          this.#assignments.add(host, taskName(open, index));
        }
      }
    }
  }

  /**
   * A name for a runner of this host. What is known of an earlier one, from before a restart of this broker, is left as it is: its
   * tasks are kept for the grace period, and their results may come by the new connection.
   */
  newId(host: string): WorkerId {
    for (let number = 1; ; number++) {
      const id = WorkerId(number === 1 ? `${PREFIX}${host}` : `${PREFIX}${host}#${number}`);
      if (this.core.worker(id) !== undefined || this.#joining.has(id)) continue;
      this.#joining.add(id);
      return id;
    }
  }

  joined(runner: ConnectedRunner): void {
    this.#joining.delete(runner.id);
    this.#runners.set(runner.id, runner);
  }

  gone(runner: ConnectedRunner): void {
    this.#joining.delete(runner.id);
    if (this.#runners.get(runner.id) === runner) this.#runners.delete(runner.id);
    this.answerOpenPetos();
  }

  answerOpenPetos(): void {
    for (const runner of this.#runners.values()) runner.answerOpenPeto();
  }

  /** A task that no runner has begun may still come to any of them. */
  get anyUnsent(): boolean {
    return [...this.#runners.values()].some(({ hasUnsent }) => hasUnsent);
  }

  recordAssignment(host: string, task: SentTask): void {
    this.#assignments.add(host, assignmentKey(task));
  }

  /** `assignment` as `findTaskByName` returns it. */
  wasAssigned(host: string, assignment: string): boolean {
    return this.#assignments.has(host, assignment);
  }

  /** A runner of this host that has claimed the task: one whose connection hangs, or one from before a restart. */
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

/** Kept with the jobs: results may come after a restart. */
async function secretOf(core: Core): Promise<string> {
  for (;;) {
    const stored = (await core.keptTexts(AREA)).find(({ key }) => key === SECRET);
    if (stored !== undefined) return stored.value;
    // Another broker of the group may be just as quick.
    await core.put(AREA, SECRET, randomBytes(16).toString("hex"), 0);
  }
}
