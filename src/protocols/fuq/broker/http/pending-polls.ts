/** Requests of one worker that wait for a task. */
import type { Socket } from "node:net";
import type { TaskDescription } from "../job-description.js";

/** The answer to a request for tasks. */
export type PollAnswer = readonly TaskDescription[] | "stop";

export interface PendingPoll {
  /** The connection on which it came, and on which its answer goes. */
  readonly socket: Socket;
  /** How many tasks at most. */
  readonly maxTasks: number;
  answer(work: PollAnswer): void;
}

/** The connection of a request. */
export interface PollSource {
  readonly socket: Socket;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
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

  /** Newest first: the connection of an old one may be dead without notice. They may be answered during the iteration. */
  *[Symbol.iterator](): Generator<PendingPoll> {
    yield* [...this.#open].reverse();
  }

  answerAll(work: PollAnswer): void {
    for (const poll of this) poll.answer(work);
  }
}
