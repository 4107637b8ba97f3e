/**
 * How a state machine reads: step after step, as long as its state changes. What is decided within a step asks for more of it, and is left to the
 * loop that runs already: a peer may say any number of things at once, and the stack is not to grow with them.
 */
export class NonReentrantLoop {
  #running = false;

  run(state: () => object, step: () => void): void {
    if (this.#running) return;
    this.#running = true;
    try {
      for (let before: object | undefined; before !== state(); ) {
        before = state();
        step();
      }
    } finally {
      this.#running = false;
    }
  }
}
