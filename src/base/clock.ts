import { badInput, LaboroError } from "./errors.js";

// Read once, because the getter costs more than the clock. Read late, because a verb may not need the module.
let timeOrigin: number | undefined;

/** Milliseconds since 1970, with fractions. Never goes backwards within one process. */
export function now(): number {
  timeOrigin ??= performance.timeOrigin;
  return timeOrigin + performance.now();
}

/** Ends early when the signal is aborted. */
export const pause = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, signal?.aborted === true ? 0 : ms);
    signal?.addEventListener("abort", end);
  });

/** Timers that are cleared together. */
export class Timers {
  readonly #running = new Set<NodeJS.Timeout>();

  after(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#running.delete(timer);
      act();
    }, ms);
    this.#running.add(timer);
  }

  clear(): void {
    for (const timer of this.#running) clearTimeout(timer);
    this.#running.clear();
  }
}

/** Limits of a wait: a time, or a signal. */
export interface WaitOptions {
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Node treats a longer timeout as 1 ms. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

export function checkTimeout(timeoutMs: number | undefined): void {
  if (timeoutMs === undefined || (Number.isFinite(timeoutMs) && timeoutMs > 0)) return;
  throw badInput(`timeoutMs: expected a finite number above 0, got ${timeoutMs}`);
}

/** Rejects with LABORO_DEADLINE after the time, or with the reason of the signal. The awaited work itself continues. */
export async function waitFor<T>(what: Promise<T>, { timeoutMs, signal }: WaitOptions, late: () => string): Promise<T> {
  what.catch(() => {});
  checkTimeout(timeoutMs);
  signal?.throwIfAborted();
  if (timeoutMs === undefined && signal === undefined) return what;
  return new Promise<T>((resolve, reject) => {
    const onAbort = (): void => settle(() => reject(signal?.reason));
    const onTimeout = (): void => settle(() => reject(new LaboroError("LABORO_DEADLINE", late())));
    const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, Math.min(timeoutMs, MAX_TIMER_MS));
    const settle = (end: () => void): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      end();
    };
    signal?.addEventListener("abort", onAbort);
    what.then(
      (value) => settle(() => resolve(value)),
      (cause: unknown) => settle(() => reject(cause)),
    );
  });
}

/** One timer for whatever is due first. */
export class Alarm {
  readonly #fire: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(fire: () => void) {
    this.#fire = fire;
  }

  /** Fires at this time, unless an earlier time is set already. */
  set(at: number): void {
    if (at >= this.#at) return;
    clearTimeout(this.#timer);
    this.#at = at;
    const inMs = Math.min(Math.max(1, Math.ceil(at - now())), MAX_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.#fire();
    }, inMs);
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
