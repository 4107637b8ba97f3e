/**
 * Ctrl-C during a run. Once: nothing new is started, what runs may end. Twice: what runs is stopped. A third time, or once the second has
 * been obeyed, the process ends.
 */
export interface Interrupt {
  /** Aborted by the first Ctrl-C. */
  readonly once: AbortSignal;
  readonly twice: AbortSignal;
  dispose(): void;
}

export function onInterrupt(): Interrupt {
  const once = new AbortController();
  const twice = new AbortController();
  const signalled = (): void => {
    if (twice.signal.aborted) process.exit(130);
    if (once.signal.aborted) twice.abort();
    else once.abort();
  };
  process.on("SIGINT", signalled);
  process.on("SIGTERM", signalled);
  return {
    once: once.signal,
    twice: twice.signal,
    dispose: () => {
      process.off("SIGINT", signalled);
      process.off("SIGTERM", signalled);
    },
  };
}
