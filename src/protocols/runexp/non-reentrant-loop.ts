/**
 * Runs the steps of a state machine as long as its state changes. A call from within a step returns at once and leaves the rest to the loop
 * that runs already: a peer may send any number of messages at once, and the stack must not grow with them.
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
