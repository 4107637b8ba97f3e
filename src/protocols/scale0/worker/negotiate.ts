/** How a worker gets from a broker's address to being registered there; and from a broker that is gone to another one. */
import { LaboroError } from "../../../base/errors.js";
import type { CurveClient } from "../../zeromq/index.js";
import { type BrokerEntry, disconnectError, type Parameters, readBrokers } from "../commands.js";
import { Link, type Taken } from "./link.js";

/** A CONNECT that is not answered in this time has failed. */
export const CONNECT_MS = 5_000;
/** Brokers that send on to others, one after the other, before it is a fault. */
const MOST_MOVES = 5;
/** With these a broker will not have this worker, now or later. */
export const isFinal = (status: number): boolean => [400, 401, 409, 444, 501].includes(status);

export interface Applicant {
  readonly identity: string;
  readonly services: readonly string[];
  readonly connectMs: number;
  readonly curve?: CurveClient;
  /** The parameters of CONNECT, with the config version as it is now. */
  connect(): Parameters;
  /** CONFIG has come. */
  configured(parameters: Parameters, body: readonly Uint8Array[]): void;
  ping(link: Link): void;
}

/** The broker will not have this worker. */
export class Refused extends Error {
  constructor(override readonly cause: LaboroError & { readonly status: number }) {
    super(cause.message);
  }
}

/** A broker says to go to others. */
export class Moved extends Error {
  constructor(readonly brokers: readonly BrokerEntry[]) {
    super("moved");
  }
}

/** CONNECT, CONFIG, PING, PONG. Follows where it is sent. Throws LABORO_BROKER_…, or Refused. */
export async function register(applicant: Applicant, url: string, moves = 0): Promise<Link> {
  const link = await openLink(applicant, url);
  try {
    await negotiate(applicant, link);
    return link;
  } catch (cause) {
    await link.close();
    if (!(cause instanceof Moved)) throw cause;
    if (moves >= MOST_MOVES) throw unreachable(`${MOST_MOVES} brokers sent it on, one to another`);
    return firstOf(
      cause.brokers.map(({ worker_uri }) => worker_uri),
      (uri) => register(applicant, uri, moves + 1),
    );
  }
}

const openLink = ({ identity, curve, connectMs }: Applicant, url: string): Promise<Link> =>
  Link.open({ url, identity, patienceMs: connectMs, ...(curve === undefined ? {} : { curve }) });

async function negotiate(applicant: Applicant, link: Link): Promise<void> {
  const end = performance.now() + applicant.connectMs;
  const left = (): number => Math.max(1, end - performance.now());
  let stale = false;
  for (;;) {
    const taken = await link.take(left());
    if (taken === "opened") {
      link.say("CONNECT", applicant.connect());
      continue;
    }
    const { command, parameters, body } = taken;
    if (command === "CONFIG") {
      applicant.configured(parameters, body);
      applicant.ping(link);
    } else if (command === "PONG") {
      return;
    } else if (command === "FORCENEGOTIATE") {
      link.say("CONNECT", applicant.connect());
    } else if (command === "CHANGEBROKER") {
      throw new Moved(readBrokers(parameters.brokers));
    } else if (command === "DISCONNECTERROR") {
      const error = disconnectError(parameters);
      if (error.status === 301) await movedFrom(link, left());
      if (isFinal(error.status) || (error.status === 426 && stale)) throw new Refused(error);
      if (error.status !== 426 && error.status !== 408) throw error;
      stale = true;
      link.say("CONNECT", applicant.connect());
    }
  }
}

/** 301 was said: CHANGEBROKER follows, or is asked for. */
export async function movedFrom(link: Link, timeoutMs: number): Promise<never> {
  link.say("NEEDBROKER", {});
  for (;;) {
    const taken = await link.take(timeoutMs);
    if (taken !== "opened" && taken.command === "CHANGEBROKER") throw new Moved(readBrokers(taken.parameters.brokers));
  }
}

/** Asks a broker of the group which one to go to. */
export async function needBroker(
  applicant: Applicant,
  url: string,
  preferred: string | undefined,
): Promise<readonly BrokerEntry[]> {
  const { identity, services, connectMs } = applicant;
  const link = await openLink(applicant, url);
  try {
    const asked = { identity, services, ...(preferred === undefined ? {} : { preferred_broker: preferred }) };
    for (;;) {
      const taken: Taken = await link.take(connectMs);
      if (taken === "opened") link.say("NEEDBROKER", asked);
      else if (taken.command === "CHANGEBROKER") return readBrokers(taken.parameters.brokers);
      else if (taken.command === "DISCONNECTERROR") throw disconnectError(taken.parameters);
    }
  } finally {
    await link.close();
  }
}

/** What the first of them gives that gives anything; throws what the first failed with, or Refused at once. */
export async function firstOf<From, To>(all: readonly From[], attempt: (one: From) => Promise<To>): Promise<To> {
  let failed: unknown;
  for (const one of all) {
    try {
      return await attempt(one);
    } catch (cause) {
      if (cause instanceof Refused) throw cause;
      failed ??= cause;
    }
  }
  throw failed ?? unreachable("there is no broker to go to");
}

export const unreachable = (why: string): LaboroError => new LaboroError("LABORO_BROKER_UNREACHABLE", why);
