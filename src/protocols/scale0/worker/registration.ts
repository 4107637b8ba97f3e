/** Registers a worker with a broker; finds another broker of the group when that one is gone. */
import { LaboroError } from "../../../base/errors.js";
import { type BrokerUris, disconnectError, type Parameters, readBrokers } from "../commands.js";
import type { Message } from "../frames.js";
import type { Scale0Link } from "./link.js";

/** A CONNECT that is not answered in this time has failed. */
export const CONNECT_TIMEOUT_MS = 5_000;
/** Redirects of one attempt. */
const MAX_REDIRECTS = 5;
/** With these codes a broker refuses this worker for good. */
export const isFinalRefusal = (status: number): boolean => [400, 401, 409, 444, 501].includes(status);

export interface RegisteringWorker {
  readonly identity: string;
  readonly services: readonly string[];
  readonly connectTimeoutMs: number;
  openLink(url: string): Promise<Scale0Link>;
  connect(link: Scale0Link): void;
  /** CONNECT again. After a pause, where that was asked for just before. */
  renegotiate(link: Scale0Link): void;
  /** Resolves when the next broker may be tried. */
  waitForRetry(): Promise<void>;
  /** CONFIG has come. */
  configReceived(message: Message, link: Scale0Link): void;
}

/** The broker refuses this worker for good. */
export class RegistrationRefused extends Error {
  constructor(override readonly cause: LaboroError & { readonly status: number }) {
    super(cause.message);
  }
}

/** A broker sends this worker to others. */
export class Redirected extends Error {
  constructor(readonly brokers: readonly BrokerUris[]) {
    super("moved");
  }
}

/** CONNECT, CONFIG, PING, PONG. Follows redirects. Throws LABORO_BROKER_…, or RegistrationRefused. */
export async function register(
  worker: RegisteringWorker,
  url: string,
  redirects = { left: MAX_REDIRECTS },
): Promise<Scale0Link> {
  const link = await worker.openLink(url);
  try {
    await negotiate(worker, link);
    return link;
  } catch (cause) {
    await link.close();
    if (!(cause instanceof Redirected)) throw cause;
    if (redirects.left-- <= 0) throw unreachable(`it was redirected ${MAX_REDIRECTS} times, the last time by ${url}`);
    await worker.waitForRetry();
    return firstSuccessful(
      cause.brokers.map(({ worker_uri }) => worker_uri),
      (uri) => register(worker, uri, redirects),
    );
  }
}

async function negotiate(worker: RegisteringWorker, link: Scale0Link): Promise<void> {
  const end = performance.now() + worker.connectTimeoutMs;
  const left = (): number => end - performance.now();
  let stale = false;
  let received = false;
  const isLate = (): boolean => received && left() <= 0;
  const late = () => unreachable(`${link.url} did not register it in ${worker.connectTimeoutMs} ms`);
  for (;;) {
    if (isLate()) throw late();
    const taken = await link.receive(Math.max(1, left())).catch((cause: unknown) => {
      throw isLate() ? late() : cause;
    });
    if (taken === "opened") {
      worker.connect(link);
      continue;
    }
    received = true;
    const { command, parameters } = taken;
    if (command === "CONFIG") {
      worker.configReceived(taken, link);
    } else if (command === "PONG") {
      return;
    } else if (command === "FORCENEGOTIATE") {
      worker.renegotiate(link);
    } else if (command === "CHANGEBROKER") {
      throw new Redirected(readBrokers(parameters.brokers));
    } else if (command === "DISCONNECTERROR") {
      const error = disconnectError(parameters);
      if (error.status === 301) await awaitRedirect(worker, link);
      if (isFinalRefusal(error.status) || (error.status === 426 && stale)) throw new RegistrationRefused(error);
      if (error.status !== 426 && error.status !== 408) throw error;
      stale = true;
      worker.renegotiate(link);
    }
  }
}

const needParameters = ({ identity, services }: RegisteringWorker): Parameters => ({ identity, services });

/** 301 has come: CHANGEBROKER follows, or is asked for. */
export async function awaitRedirect(worker: RegisteringWorker, link: Scale0Link): Promise<never> {
  link.send("NEEDBROKER", needParameters(worker));
  for (;;) {
    const taken = await link.receive(worker.connectTimeoutMs);
    if (taken !== "opened" && taken.command === "CHANGEBROKER")
      throw new Redirected(readBrokers(taken.parameters.brokers));
  }
}

/** Asks the broker at the other end which one to go to. The link is closed. */
export async function needBroker(
  link: Scale0Link,
  parameters: Parameters,
  timeoutMs: number,
): Promise<readonly BrokerUris[]> {
  try {
    for (;;) {
      const taken = await link.receive(timeoutMs);
      if (taken === "opened") link.send("NEEDBROKER", parameters);
      else if (taken.command === "CHANGEBROKER") return readBrokers(taken.parameters.brokers);
      else if (taken.command === "DISCONNECTERROR") throw disconnectError(taken.parameters);
    }
  } finally {
    await link.close();
  }
}

/** The result of the first attempt that succeeds; throws the first failure, or RegistrationRefused at once. */
export async function firstSuccessful<From, To>(
  all: readonly From[],
  attempt: (one: From) => Promise<To>,
): Promise<To> {
  let failed: unknown;
  for (const one of all) {
    try {
      return await attempt(one);
    } catch (cause) {
      if (cause instanceof RegistrationRefused) throw cause;
      failed ??= cause;
    }
  }
  throw failed ?? unreachable("there is no broker to go to");
}

export const unreachable = (why: string): LaboroError => new LaboroError("LABORO_BROKER_UNREACHABLE", why);

const RETRY_MS = 500;
const MAX_FACTOR = 10;

/** Spaces out repeated attempts: the first one is made at once, those soon after it wait longer and longer. */
export class RetryDelay {
  readonly #firstMs: number;
  #delayMs = 0;
  #last = Number.NEGATIVE_INFINITY;

  constructor(firstMs = RETRY_MS) {
    this.#firstMs = firstMs;
  }

  /** How long to wait before the next attempt. */
  next(now = performance.now()): number {
    const maxMs = MAX_FACTOR * this.#firstMs;
    this.#delayMs = now - this.#last > 2 * maxMs ? 0 : Math.min(Math.max(2 * this.#delayMs, this.#firstMs), maxMs);
    const at = Math.max(now, this.#last + this.#delayMs);
    this.#last = at;
    return at - now;
  }
}
