/** Waiting by condition, never by time alone. */
import { performance } from "node:perf_hooks";

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Polls until the condition gives something other than false or undefined, and gives that; fails at the deadline. The longer it has waited,
 * the less often it asks, so that a wait costs the others little. `what` is a function where it tells of what came during the wait.
 */
export async function until<T>(
  what: string | (() => string),
  condition: () => T | false | undefined | Promise<T | false | undefined>,
  deadlineMs = 60_000,
): Promise<T> {
  const begun = performance.now();
  for (;;) {
    const found = await condition();
    if (found !== false && found !== undefined) return found;
    const waitedMs = performance.now() - begun;
    if (waitedMs > deadlineMs) {
      throw new Error(`not within ${deadlineMs} ms: ${typeof what === "string" ? what : what()}`);
    }
    await sleep(Math.min(5 + waitedMs / 20, 25));
  }
}
