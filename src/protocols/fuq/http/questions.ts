/** Questions of one worker that wait for something to do. */
import type { TaskDescription } from "./description.js";

/** What a question is answered with. */
export type Work = readonly TaskDescription[] | "stop";

export interface Question {
  /** How many tasks at most. */
  readonly wants: number;
  answer(work: Work): void;
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
  ask(wants: number, gone: AbortSignal): Promise<Work> {
    return new Promise((resolve) => {
      const question: Question = {
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

  /** Oldest first. They may be answered on the way. */
  *[Symbol.iterator](): Generator<Question> {
    yield* [...this.#open];
  }

  answerAll(work: Work): void {
    for (const question of this) question.answer(work);
  }
}
