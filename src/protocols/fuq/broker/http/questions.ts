/** Questions of one worker that wait for something to do. */
import type { Socket } from "node:net";
import type { TaskDescription } from "../task-description.js";

/** What a question is answered with. */
export type Work = readonly TaskDescription[] | "stop";

export interface Question {
  /** The connection on which it came, and on which its answer goes. */
  readonly socket: Socket;
  /** How many tasks at most. */
  readonly wants: number;
  answer(work: Work): void;
}

/** Who asks. */
export interface Asking {
  readonly socket: Socket;
  /** Aborted when nobody waits for the answer any more. */
  readonly gone: AbortSignal;
}

export class Questions {
  readonly #open = new Set<Question>();
  readonly #withdrawn: () => void;

  /** `withdrawn` is called when somebody who asked has gone. */
  constructor(withdrawn: () => void) {
    this.#withdrawn = withdrawn;
  }

  /** How many tasks are asked for, together. */
  get wanted(): number {
    let sum = 0;
    for (const { wants } of this.#open) sum += wants;
    return sum;
  }

  /** Resolves when it is answered, with nothing where nobody waits for that any more. */
  ask(wants: number, { socket, gone }: Asking): Promise<Work> {
    return new Promise((resolve) => {
      const question: Question = {
        socket,
        wants,
        answer: (work) => {
          gone.removeEventListener("abort", withdraw);
          if (this.#open.delete(question)) resolve(work);
        },
      };
      const withdraw = (): void => {
        question.answer([]);
        this.#withdrawn();
      };
      this.#open.add(question);
      gone.addEventListener("abort", withdraw, { once: true });
      if (gone.aborted) withdraw();
    });
  }

  /** Newest first: an old one may stand on a connection that is dead, and nobody knows yet. They may be answered on the way. */
  *[Symbol.iterator](): Generator<Question> {
    yield* [...this.#open].reverse();
  }

  answerAll(work: Work): void {
    for (const question of this) question.answer(work);
  }
}
