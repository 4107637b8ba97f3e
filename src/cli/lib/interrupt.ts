/**
 * Ctrl-C during a run. Once: nothing new is started, what runs may end. Twice: what runs is stopped. A third time, or once the second has
 * been obeyed, the process ends. SIGTERM is as both at once: batch systems and service managers send one, and SIGKILL soon after.
 */
export interface Interrupt {
  /** Aborted by the first Ctrl-C, or by SIGTERM, which is the reason then. */
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
  const terminated = (): void => {
    if (twice.signal.aborted) process.exit(130);
    once.abort("SIGTERM");
    twice.abort();
  };
  process.on("SIGINT", signalled);
  process.on("SIGTERM", terminated);
  return {
    once: once.signal,
    twice: twice.signal,
    dispose: () => {
      process.off("SIGINT", signalled);
      process.off("SIGTERM", terminated);
    },
  };
}
