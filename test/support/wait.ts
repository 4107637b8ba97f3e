/** Waiting by condition, never by time alone. */
import { performance } from "node:perf_hooks";

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Polls until the condition gives something other than false or undefined, and gives that; fails at the deadline. */
export async function until<T>(
  what: string,
  condition: () => T | false | undefined | Promise<T | false | undefined>,
  deadlineMs = 25_000,
): Promise<T> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const found = await condition();
    if (found !== false && found !== undefined) return found;
    if (performance.now() > end) throw new Error(`not within ${deadlineMs} ms: ${what}`);
    await sleep(5);
  }
}
