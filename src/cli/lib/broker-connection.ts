/** Connects a verb to its broker: which one, how long to try, and what Ctrl-C does meanwhile. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import { LaboroError } from "../../base/errors.js";
import { LOCAL_DATA, localDataDir } from "../../base/files/local-data.js";
import type { OperationInput, OperationName, OperationOutput } from "../../broker/operations/index.js";
import { type Client, connect } from "../../client/client.js";
import { type BrokerAccess, findBroker } from "../../client/find-broker.js";
import { EXIT } from "./failures.js";
import { printNotice } from "./print.js";
import { probeBroker } from "./probe.js";

/** What `addBrokerOptions` leaves in a verb's options. */
export interface BrokerChoice {
  readonly broker?: string;
  readonly data?: string;
  readonly verbose?: boolean;
}

const CONNECT_MS = 10_000;
const PROBE_MS = 5_000;
const PAUSE_MS = 100;

export function addBrokerOptions(command: Command): Command {
  return command
    .option(
      "--broker <url>",
      "the broker's URL with a token, or @FILE that holds it, as its client.url (default: $LABORO_BROKER)",
    )
    .option(
      "--data <dir>",
      "the broker's data directory, with its access.json (default: $LABORO_DATA, ~/.local/share/laboro)",
    )
    .option("--verbose", "say more when something fails");
}

/** Runs `work` with a connected client and closes the client afterwards. */
export async function withBroker<T>(choice: BrokerChoice, work: (client: Client) => Promise<T>): Promise<T> {
  const { client, close } = await connectOrOpenLocal(choice);
  const interrupt = (): never => process.exit(EXIT.interrupted);
  process.once("SIGINT", interrupt);
  try {
    return await work(client);
  } finally {
    process.off("SIGINT", interrupt);
    await close();
  }
}

interface BrokerConnection {
  readonly client: Client;
  close(): Promise<void>;
}

/** Connects to the broker. Without one, opens a temporary broker on the data that a run left in this directory. */
async function connectOrOpenLocal(choice: BrokerChoice): Promise<BrokerConnection> {
  try {
    const client = await connectToBroker(choice, CONNECT_MS);
    return { client, close: async () => client.close() };
  } catch (cause) {
    const dir = localDataFallback(choice, cause);
    if (dir === undefined) throw cause;
    if (process.stderr.isTTY)
      printNotice(`no broker runs; this is what runs in this directory have left in ${shownData(dir)}`);
    const { openLocalBroker } = await import("./local-broker.js");
    const local = await openLocalBroker(dir, 0);
    return { client: local.client, close: () => local.close(false) };
  }
}

/** The data that a run left in this directory, where no broker was named and none answers. */
export function localDataFallback(choice: BrokerChoice, cause: unknown): string | undefined {
  if (isBrokerConfigured(choice)) return undefined;
  const dir = localDataDir(".");
  if (!existsSync(join(dir, "store.db"))) return undefined;
  return cause instanceof LaboroError && cause.code === "LABORO_BROKER_UNREACHABLE" ? dir : undefined;
}

const shownData = (dir: string): string => (dir === resolve(LOCAL_DATA) ? LOCAL_DATA : dir);

/** Whether a broker was named explicitly, by an option or in the environment. */
export const isBrokerConfigured = ({ broker, data }: BrokerChoice): boolean =>
  [broker, data, process.env.LABORO_BROKER, process.env.LABORO_DATA].some((name) => name !== undefined && name !== "");

/** Waits until the broker answers, up to the deadline: for scripts that have just started one. */
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

/** Failures that end when the broker is started again. */
const isTransient = (cause: unknown): boolean =>
  cause instanceof LaboroError && /^LABORO_BROKER_(UNREACHABLE|GONE|STOPPING)$/.test(cause.code);

/** Repeats a read-only operation while the broker is gone, until `signal` is aborted. */
export async function askWithRetry<Name extends OperationName>(
  client: Client,
  operation: Name,
  input: OperationInput<Name>,
  signal?: AbortSignal,
): Promise<OperationOutput<Name>> {
  for (let reported = false; ; reported = true) {
    try {
      return await client.ask(operation, input);
    } catch (cause) {
      if (!isTransient(cause) || signal?.aborted === true) throw cause;
      if (!reported) printNotice("the broker is gone; waiting for it to come back");
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

/** Passes on only what says where the broker is: a verb may have other options with the names of `FindBrokerOptions`. */
export const resolveBroker = ({ broker, data }: BrokerChoice): BrokerAccess => findBroker({ broker, data });

/** A client of the chosen broker. */
export async function connectToBroker(choice: BrokerChoice, timeoutMs: number): Promise<Client> {
  const { urls, token, caFingerprint } = resolveBroker(choice);
  await probeBroker(urls, Math.min(timeoutMs, PROBE_MS));
  return connect({ broker: urls, token, caFingerprint, connectTimeoutMs: timeoutMs });
}
