/**
 * The calls that a worker has not answered. An abandoned call, for which no client waits any more, stays here, because
 * the worker is still busy with it and cannot be stopped.
 */
import { now } from "../../../base/clock.js";
import type { WorkerCall } from "../../../broker/sessions/call-worker.js";
import { DEFAULT_TIMEOUT } from "../commands.js";

interface WaitingCall {
  readonly call: WorkerCall;
  /** When its client stopped waiting. */
  abandonedSince?: number;
}

export class WaitQueue {
  /** By the identifier that the worker returns. */
  readonly #calls = new Map<string, WaitingCall>();

  /** Calls for which a client waits. */
  get awaited(): number {
    let count = 0;
    for (const { abandonedSince } of this.#calls.values()) if (abandonedSince === undefined) count++;
    return count;
  }

  /** The slots of all calls. An abandoned call frees its slot after its timeout has passed once more. */
  busySlots(): number {
    const time = now();
    for (const [identifier, { call, abandonedSince }] of this.#calls) {
      const { timeoutMs = DEFAULT_TIMEOUT } = call;
      if (abandonedSince !== undefined && time - abandonedSince > timeoutMs) this.#calls.delete(identifier);
    }
    return this.#calls.size;
  }

  add(identifier: string, call: WorkerCall): void {
    this.#calls.set(identifier, { call });
  }

  /** The answered call, if a client waits for it. */
  take(identifier: string): WorkerCall | undefined {
    const waiting = this.#calls.get(identifier);
    this.#calls.delete(identifier);
    return waiting?.abandonedSince === undefined ? waiting?.call : undefined;
  }

  /** The call of this name, if a client waited for it. */
  abandon(name: string): WorkerCall | undefined {
    for (const waiting of this.#calls.values()) {
      if (waiting.call.name !== name || waiting.abandonedSince !== undefined) continue;
      waiting.abandonedSince = now();
      return waiting.call;
    }
    return undefined;
  }

  clear(): void {
    this.#calls.clear();
  }
}
