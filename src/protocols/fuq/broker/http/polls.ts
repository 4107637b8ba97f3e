/** The requests of one polling worker that wait for tasks, and the tasks that it got in an answer and has not reported. */
import type { Socket } from "node:net";
import type { Core, WorkerPort } from "../../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../../broker/sessions/assigned-tasks.js";
import type { TaskIndex } from "../../../../model/ids.js";
import type { Job } from "../../../../model/job.js";
import { pairKey, pairOf, type Task } from "../../messages.js";
import { toFuqTask } from "../fuq-task.js";

/** The answer to a request for tasks. */
export type PollAnswer = readonly Task[] | "stop";

/** The connection of a request. */
export interface PollSource {
  readonly socket: Socket;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

interface PendingPoll {
  /** The connection on which it came, and on which its answer goes. */
  readonly socket: Socket;
  /** How many tasks at most. */
  readonly maxTasks: number;
  answer(work: PollAnswer): void;
}

export class PendingPolls {
  readonly #open = new Set<PendingPoll>();
  readonly #onWithdrawn: () => void;

  /** `onWithdrawn` is called when a client that waits has disconnected. */
  constructor(onWithdrawn: () => void) {
    this.#onWithdrawn = onWithdrawn;
  }

  /** How many tasks are asked for, together. */
  get wantedTasks(): number {
    let sum = 0;
    for (const { maxTasks } of this.#open) sum += maxTasks;
    return sum;
  }

  /** Resolves when it is answered, with nothing where nobody waits for that any more. */
  add(maxTasks: number, { socket, signal }: PollSource): Promise<PollAnswer> {
    return new Promise((resolve) => {
      const poll: PendingPoll = {
        socket,
        maxTasks,
        answer: (work) => {
          signal.removeEventListener("abort", withdraw);
          if (this.#open.delete(poll)) resolve(work);
        },
      };
      const withdraw = (): void => {
        poll.answer([]);
        this.#onWithdrawn();
      };
      this.#open.add(poll);
      signal.addEventListener("abort", withdraw, { once: true });
      if (signal.aborted) withdraw();
    });
  }

  /** Newest first: the connection of an old one may be dead without notice. */
  get newestFirst(): readonly PendingPoll[] {
    return [...this.#open].reverse();
  }

  answerAll(work: PollAnswer): void {
    for (const poll of this.newestFirst) poll.answer(work);
  }
}

interface PolledTaskFields {
  readonly description: Task;
  /** On which it was given; absent where that was before this broker was started. */
  socket?: Socket;
}

export type PolledTask = AssignedTask<PolledTaskFields>;

export class PolledTasks extends AssignedTasks<PolledTaskFields> {
  readonly #polls: PendingPolls;
  readonly #slots: (taken: number) => number;

  constructor(core: Core, port: WorkerPort, polls: PendingPolls, slots: (taken: number) => number) {
    super(core, port);
    this.#polls = polls;
    this.#slots = slots;
  }

  protected describe(job: Job, index: TaskIndex) {
    const description = toFuqTask(job, index);
    return description && { name: pairKey(pairOf(description)), description };
  }

  protected slots(): number {
    return this.#slots(this.claimedCount);
  }

  /** Each request gets as many tasks as it asks for. */
  protected pending(): void {
    this.takeCancels();
    for (const poll of this.#polls.newestFirst) {
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
