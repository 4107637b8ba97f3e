/**
 * Wrong tokens are answered ever more slowly, by the address they come from. Right ones are never slowed: behind one address
 * may be a whole cluster. A token has 192 bits, so this is not what keeps guessers out; it keeps their noise down.
 */
const FIRST_MS = 100;
const LONGEST_MS = 10_000;
/** Wrong ones are forgotten after so long a silence. */
const FORGOTTEN_MS = 60_000;
/** Addresses remembered; the one heard longest ago goes first. */
const ADDRESSES = 1_000;
/** Answers held back for one address; more are refused at once. */
const MAX_DELAYED = 16;

interface FailedLogins {
  failures: number;
  last: number;
  delayed: number;
}

export class TokenThrottle {
  readonly #offenders = new Map<string, FailedLogins>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#offenders.size;
  }

  /** A wrong token came. The time to wait before saying so; undefined where too many wait already. */
  delayAfterFailure(address: string): number | undefined {
    const key = networkOf(address);
    const at = this.#now();
    const before = this.#offenders.get(key);
    const offender =
      before !== undefined && at - before.last < FORGOTTEN_MS ? before : { wrong: 0, last: at, heldBack: 0 };
    this.#offenders.delete(key);
    this.#offenders.set(key, offender);
    offender.last = at;
    const [oldest] = this.#offenders.keys();
    if (this.#offenders.size > ADDRESSES && oldest !== undefined) this.#offenders.delete(oldest);
    if (offender.delayed >= MAX_DELAYED) return undefined;
    offender.delayed++;
    return Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(offender.failures++, 20));
  }

  /** The answer that was held back has gone. */
  refusalSent(address: string): void {
    const offender = this.#offenders.get(networkOf(address));
    if (offender !== undefined && offender.delayed > 0) offender.delayed--;
  }
}

/** Who has one IPv6 address has 2^64 of them. */
function networkOf(address: string): string {
  if (!address.includes(":") || address.startsWith("::ffff:")) return address;
  return address.split(":").slice(0, 4).join(":");
}
