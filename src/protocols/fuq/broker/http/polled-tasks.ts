/** Tasks that a polling worker got in an answer, and whose end it has not reported. */
import type { Socket } from "node:net";
import type { Core, WorkerPort } from "../../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../../broker/sessions/assigned-tasks.js";
import type { TaskIndex } from "../../../../model/ids.js";
import type { Job } from "../../../../model/job.js";
import { nameOf } from "../fuq-task.js";
import { describeTask, type TaskDescription } from "../job-description.js";
import type { PendingPoll } from "./pending-polls.js";

interface PolledTaskFields {
  readonly description: TaskDescription;
  /** On which it was given; absent where that was before this broker was started. */
  socket?: Socket;
}

export type PolledTask = AssignedTask<PolledTaskFields>;

export interface PolledTasksOptions {
  readonly core: Core;
  readonly port: WorkerPort;
  readonly slots: (taken: number) => number;
  /** The requests that wait for tasks. */
  readonly polls: Iterable<PendingPoll>;
}

export class PolledTasks extends AssignedTasks<PolledTaskFields> {
  readonly #options: PolledTasksOptions;

  constructor(options: PolledTasksOptions) {
    super(options.core, options.port);
    this.#options = options;
  }

  protected describe(job: Job, index: TaskIndex) {
    const description = describeTask(job, index);
    return { name: nameOf(job.id, description.task), description };
  }

  protected slots(): number {
    return this.#options.slots(this.claimedCount);
  }

  /** Each request gets as many tasks as it asks for. */
  protected pending(): void {
    this.takeCancels();
    for (const poll of this.#options.polls) {
      const given: PolledTask[] = [];
      while (given.length < poll.maxTasks) {
        const task = this.nextUnsent();
        if (task === undefined) break;
        task.socket = poll.socket;
        this.started(task);
        given.push(task);
      }
      if (given.length === 0) break;
      poll.answer(given.map(({ description }) => description));
    }
    // The worker has disconnected meanwhile.
    if (this.count("unsent") > 0) this.drain();
    this.publishSlots();
  }

  /**
   * Which of those that were given until then are so many that did not arrive. An answer that does not arrive goes down with its
   * connection; so it is clear where there are not more of that kind, and otherwise it is not.
   */
  undelivered(count: number, until: number): readonly PolledTask[] {
    const old = this.all().filter(({ since }) => since <= until);
    if (count >= old.length) return old;
    const doubtful = old.filter(({ socket }) => socket === undefined || socket.destroyed);
    return count >= doubtful.length ? doubtful : [];
  }
}
