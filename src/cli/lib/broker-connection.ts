/**
 * Connects a verb to its broker: which one, how long to try, and what Ctrl-C does meanwhile. The broker is
 *   1. with --local, the one of `laboro run` in this directory, ./.laboro
 *   2. the configured one: by an option, the environment, or the access.json of this user
 *   3. if none is configured, ./.laboro
 * A broker of `laboro run` runs only as long as the run. After it, a temporary broker opens the data in ./.laboro.
 */
import { existsSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { isLocalData, localData } from "../../base/files/local-data.js";
import { type Client, connect } from "../../client/client.js";
import { dataDirectory, findBroker, isBrokerConfigured } from "../../client/find-broker.js";
import type { FollowOptions } from "../../client/follow.js";
import type { JobProgress } from "../../model/outcome.js";
import { EndedTasks } from "../../model/ranges.js";
import type { BrokerAccess } from "../../protocols/laboro/broker-address.js";
import { EXIT } from "./failures.js";
import { printNotice } from "./print.js";

/** The options that `addBrokerOptions` adds to a verb. */
export interface BrokerChoice {
  readonly broker?: string;
  readonly data?: string;
  readonly local?: boolean;
  readonly verbose?: boolean;
}

const CONNECT_MS = 10_000;
const PAUSE_MS = 100;

export function addBrokerOptions(command: Command): Command {
  return command
    .option(
      "--broker <@file>",
      "a file with the broker's URL and a token, as its client.url (default: $LABORO_BROKER, the URL or @FILE)",
    )
    .option(
      "--data <dir>",
      "the broker's data directory, with its access.json (default: $LABORO_DATA, ~/.local/share/laboro)",
    )
    .option("--local", "use ./.laboro, the data of laboro run in this directory, even if a broker is configured")
    .option("--verbose", "print details of failures");
}

interface BrokerConnection {
  readonly client: Client;
  /** For messages: "the broker at http://…", "./.laboro". */
  readonly place: string;
  /** The broker runs in this process, without workers, on the data of earlier runs. */
  readonly isTemporary: boolean;
  close(): Promise<void>;
}

/** Runs `work` with a connected client and closes the client afterwards. */
export async function withBroker<T>(
  choice: BrokerChoice,
  work: (client: Client, place: string) => Promise<T>,
  open: (choice: BrokerChoice) => Promise<BrokerConnection> = openBroker,
): Promise<T> {
  const { client, place, close } = await open(choice);
  const interrupt = (): never => process.exit(EXIT.interrupted);
  process.once("SIGINT", interrupt);
  try {
    return await work(client, place);
  } finally {
    process.off("SIGINT", interrupt);
    await close();
  }
}

/** Connects to the broker, or opens a temporary one on the data of earlier runs in this directory. */
export async function openBroker(choice: BrokerChoice): Promise<BrokerConnection> {
  if (choice.local === true) return openLocalData(localDataOf(choice));
  try {
    return await connectRunning(choice);
  } catch (cause) {
    const dir = localDataInstead(choice, cause);
    if (dir === undefined) throw withLocalHint(cause);
    if (process.stderr.isTTY && choice.data === undefined)
      printNotice(`no broker is running; showing the data of earlier runs in ${shownPath(dir)}`);
    return openLocalData(dir);
  }
}

/** Connects to a running broker only: without workers the data of earlier runs is of no use to the verb. */
export const openRunningBroker = (choice: BrokerChoice): Promise<BrokerConnection> =>
  connectRunning(choice.local === true ? { data: localDataOf(choice) } : choice);

/** The same for a submission, which outlives this process: `laboro run` does without a broker. */
export async function openBrokerForJob(choice: BrokerChoice): Promise<BrokerConnection> {
  try {
    return await openRunningBroker(choice);
  } catch (cause) {
    if (!isUnreachable(cause)) throw cause;
    const why = isConfigured(choice) ? cause.message : "no broker is configured, so this job would never run";
    const remedy =
      "use laboro run to run it here and now, or start a broker (laboro serve) and a worker (laboro worker)";
    throw new LaboroError(cause.code, `${why}: ${remedy}`, { cause });
  }
}

async function connectRunning(choice: BrokerChoice): Promise<BrokerConnection> {
  const access = resolveBroker(choice);
  const client = await connectTo(access, CONNECT_MS);
  const place = `the broker at ${access.urls.join(", ")} (${access.source})`;
  noticeOtherData(choice, place);
  return { client, place, isTemporary: false, close: async () => client.close() };
}

async function openLocalData(dir: string): Promise<BrokerConnection> {
  if (!hasData(dir)) {
    throw new LaboroError(
      "LABORO_BROKER_UNREACHABLE",
      `there is no data in ${shownPath(dir)}: laboro run has not been used here`,
    );
  }
  const { openLocalBroker } = await import("./local-broker.js");
  const { client, started, close } = await openLocalBroker(dir, 0);
  return { client, place: shownPath(dir), isTemporary: started !== undefined, close: () => close(false) };
}

/** The data directory of --local; --data may name another one. */
export function localDataOf({ broker, data }: BrokerChoice): string {
  if (broker !== undefined) throw badInput("--local and --broker name two brokers");
  return data === undefined ? localData(".").dir : resolve(data);
}

/** The data of a run whose broker has ended: at --data, or in this directory if no broker is configured. */
export function localDataInstead(choice: BrokerChoice, cause: unknown): string | undefined {
  if (!isUnreachable(cause) || choice.broker !== undefined) return undefined;
  const dir = resolve(dataDirectory({ data: choice.data }));
  const byUrl = choice.data === undefined && (process.env.LABORO_BROKER ?? "") !== "";
  if (!byUrl && isLocalData(dir) && hasData(dir)) return dir;
  return isConfigured(choice) ? undefined : localDataHere();
}

export const isConfigured = ({ broker, data }: BrokerChoice): boolean => isBrokerConfigured({ broker, data });

/** The data of earlier runs in this directory, if there is any. */
function localDataHere(): string | undefined {
  try {
    const { dir } = localData(".");
    return hasData(dir) ? dir : undefined;
  } catch (cause) {
    // This machine has no directory for such data, so there is none.
    if (cause instanceof LaboroError) return undefined;
    throw cause;
  }
}

const hasData = (dir: string): boolean => existsSync(join(dir, "store.db"));

/** Relative to the working directory if it is inside it. */
function shownPath(dir: string): string {
  const short = relative(".", dir);
  return short.startsWith("..") || short === "" ? dir : `./${short}`;
}

/** On a terminal, prints which broker is used if the user may have meant ./.laboro. */
export function noticeOtherData({ broker, data }: BrokerChoice, place: string): void {
  if (!process.stderr.isTTY || broker !== undefined || data !== undefined) return;
  const dir = localDataHere();
  if (dir === undefined || dir === resolve(dataDirectory())) return;
  printNotice(`using ${place}; --local uses ${shownPath(dir)}`);
}

/** Mentions ./.laboro if the configured broker does not answer. */
function withLocalHint(cause: unknown): unknown {
  const dir = isUnreachable(cause) ? localDataHere() : undefined;
  if (!isUnreachable(cause) || dir === undefined) return cause;
  return new LaboroError(cause.code, `${cause.message}; --local uses ${shownPath(dir)}`, { cause });
}

export const isUnreachable = (cause: unknown): cause is LaboroError =>
  cause instanceof LaboroError && cause.code === "LABORO_BROKER_UNREACHABLE";

/** Waits until the broker answers, up to the deadline. For scripts that have just started one. */
export async function waitForBroker(choice: BrokerChoice, deadlineMs: number): Promise<void> {
  const end = Date.now() + deadlineMs;
  for (;;) {
    try {
      (await connectToBroker(choice, Math.max(1, end - Date.now()))).close();
      return;
    } catch (cause) {
      if (!isTransient(cause) || Date.now() + PAUSE_MS > end) throw cause;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

/** Failures that a restart of the broker ends. */
const isTransient = (cause: unknown): boolean =>
  cause instanceof LaboroError && /^LABORO_BROKER_(UNREACHABLE|GONE|STOPPING)$/.test(cause.code);

/** Repeats a read-only operation while the broker is disconnected. */
export async function repeatWhileGone<T>(client: Client, act: (client: Client) => Promise<T>): Promise<T> {
  for (let reported = false; ; reported = true) {
    try {
      return await act(client);
    } catch (cause) {
      if (!isTransient(cause) || client.closed) throw cause;
      if (!reported) printNotice("the broker disconnected; waiting for it to come back");
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

/** Follows a job across disconnects of the broker, and reports them. */
export async function* followWithRetry(
  client: Client,
  job: number,
  options: FollowOptions = {},
): AsyncGenerator<JobProgress, void> {
  const ended = new EndedTasks(options.has);
  for (let reported = false; ; reported = true) {
    try {
      for await (const progress of client.follow(job, { ...options, has: ended.ranges, reconnect: false })) {
        yield progress;
        for (const task of progress.tasks) ended.add(task);
      }
      return;
    } catch (cause) {
      // A client reconnects by itself until it is closed.
      if (!isTransient(cause) || client.closed || options.signal?.aborted === true) throw cause;
      if (!reported) printNotice("the broker disconnected; waiting for it to come back");
    }
  }
}

/** Passes on these two only: a verb may have unrelated options with names of `FindBrokerOptions`. */
export const resolveBroker = ({ broker, data }: BrokerChoice): BrokerAccess => findBroker({ broker, data });

/** A client of the chosen broker. */
export const connectToBroker = async (choice: BrokerChoice, timeoutMs: number): Promise<Client> =>
  connectTo(resolveBroker(choice), timeoutMs);

const connectTo = ({ urls, token, caFingerprint }: BrokerAccess, connectTimeoutMs: number): Promise<Client> =>
  connect({ broker: urls, token, caFingerprint, connectTimeoutMs, failFast: true });
