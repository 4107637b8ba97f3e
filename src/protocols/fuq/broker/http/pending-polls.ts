/** Questions of one worker that wait for something to do. */
import type { Socket } from "node:net";
import type { TaskDescription } from "../job-description.js";

/** What a question is answered with. */
export type PollAnswer = readonly TaskDescription[] | "stop";

export interface PendingPoll {
  /** The connection on which it came, and on which its answer goes. */
  readonly socket: Socket;
  /** How many tasks at most. */
  readonly maxTasks: number;
  answer(work: PollAnswer): void;
}

/** Who asks. */
export interface PollSource {
  readonly socket: Socket;
  /** Aborted when nobody waits for the answer any more. */
  readonly gone: AbortSignal;
}

export class PendingPolls {
  readonly #open = new Set<PendingPoll>();
  readonly #onWithdrawn: () => void;

  /** `withdrawn` is called when somebody who asked has gone. */
  constructor(onWithdrawn: () => void) {
    this.#onWithdrawn = onWithdrawn;
  }

  /** How many tasks are asked for, together. */
  get wantedTasks(): number {
    let sum = 0;
    for (const { maxTasks: wants } of this.#open) sum += wants;
    return sum;
  }

  /** Resolves when it is answered, with nothing where nobody waits for that any more. */
  add(wants: number, { socket, gone }: PollSource): Promise<PollAnswer> {
    return new Promise((resolve) => {
      const question: PendingPoll = {
        socket,
        maxTasks: wants,
        answer: (work) => {
          gone.removeEventListener("abort", withdraw);
          if (this.#open.delete(question)) resolve(work);
        },
      };
      const withdraw = (): void => {
        question.answer([]);
        this.#onWithdrawn();
      };
      this.#open.add(question);
      gone.addEventListener("abort", withdraw, { once: true });
      if (gone.aborted) withdraw();
    });
  }

  /** Newest first: an old one may stand on a connection that is dead, and nobody knows yet. They may be answered on the way. */
  *[Symbol.iterator](): Generator<PendingPoll> {
    yield* [...this.#open].reverse();
  }

  answerAll(work: PollAnswer): void {
    for (const question of this) question.answer(work);
  }
}
