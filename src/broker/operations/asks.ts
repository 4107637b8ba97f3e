/**
 * Bounds unanswered requests of clients, by number and by bytes: per connection, per role, and in total. Further ones
 * are refused with LABORO_QUEUE_FULL. Accepted ones are not affected.
 */
import { LaboroError } from "../../base/errors.js";
import type { Role } from "../access/tokens.js";

const MIB = 1024 * 1024;

interface AskBound {
  /** Operations and requests. */
  readonly asks: number;
  /** Their bytes, as they came. */
  readonly bytes: number;
  /** Operations that wait for the next event or for output. Each change wakes them, so there are fewer. */
  readonly follows: number;
}

export interface AskBounds {
  readonly perConnection: AskBound;
  readonly perRole: AskBound;
  readonly inAll: AskBound;
}

export const ASK_BOUNDS: AskBounds = {
  perConnection: { asks: 20_000, bytes: 256 * MIB, follows: 250 },
  perRole: { asks: 50_000, bytes: 384 * MIB, follows: 1_500 },
  inAll: { asks: 100_000, bytes: 512 * MIB, follows: 2_000 },
};

/** Operations of one connection that read the store at a time; the others wait for their turn. */
const READS = 32;

class Count {
  readonly #now: Record<keyof AskBound, number> = { asks: 0, bytes: 0, follows: 0 };
  readonly #bound: AskBound;
  readonly #whose: string;

  constructor(bound: AskBound, whose: string) {
    this.#bound = bound;
    this.#whose = whose;
  }

  /** Throws if one more request with this many bytes exceeds a bound. */
  check(bytes: number, follows: number): void {
    const { asks, bytes: most, follows: mostFollows } = this.#bound;
    if (this.#now.asks + 1 > asks) throw this.#full("asks");
    if (this.#now.bytes + bytes > most) throw this.#full("bytes");
    if (this.#now.follows + follows > mostFollows) throw this.#full("follows");
  }

  #full(kind: keyof AskBound): LaboroError {
    const why = `${this.#whose} has unanswered operations and requests already (${kind}: ${this.#now[kind]})`;
    return new LaboroError("LABORO_QUEUE_FULL", why);
  }

  add(asks: 1 | -1, bytes: number, follows: number): void {
    this.#now.asks += asks;
    this.#now.bytes += bytes;
    this.#now.follows += follows;
  }
}

export class Asks {
  readonly #bounds: AskBounds;
  readonly #inAll: Count;
  readonly #byRole = new Map<Role, Count>();

  constructor(bounds: AskBounds = ASK_BOUNDS) {
    this.#bounds = bounds;
    this.#inAll = new Count(bounds.inAll, "the broker");
  }

  connection(role: Role): ConnectionAsks {
    const ofRole = this.#byRole.get(role) ?? new Count(this.#bounds.perRole, `the role ${role}`);
    this.#byRole.set(role, ofRole);
    return new ConnectionAsks([new Count(this.#bounds.perConnection, "this connection"), ofRole, this.#inAll]);
  }
}

export class ConnectionAsks {
  readonly #counts: readonly Count[];
  #reading = 0;
  readonly #waitingReads: (() => void)[] = [];

  constructor(counts: readonly Count[]) {
    this.#counts = counts;
  }

  /** Something was asked. Returns the function to call when it is answered. Throws LABORO_QUEUE_FULL. */
  begin(bytes: number, follows = 0): () => void {
    this.add(bytes, follows);
    return () => this.remove(bytes, follows);
  }

  /** Like `begin`, but ended by `remove` with the same numbers. Throws LABORO_QUEUE_FULL. */
  add(bytes: number, follows = 0): void {
    for (const count of this.#counts) count.check(bytes, follows);
    for (const count of this.#counts) count.add(1, bytes, follows);
  }

  remove(bytes: number, follows = 0): void {
    for (const count of this.#counts) count.add(-1, -bytes, -follows);
  }

  /** Reads when it is this connection's turn: one with thousands of questions does not delay the others. */
  async read<T>(read: () => Promise<T>): Promise<T> {
    if (this.#reading >= READS) await new Promise<void>((resolve) => this.#waitingReads.push(resolve));
    else this.#reading++;
    try {
      return await read();
    } finally {
      const next = this.#waitingReads.shift();
      if (next === undefined) this.#reading--;
      else next();
    }
  }
}
