/**
 * The address of the broker and the token. The first of these that exists:
 *   1. the given join URL, or `@FILE`, a file that contains one
 *   2. `access.json` in the given data directory; a broker on this machine writes it
 *   3. LABORO_BROKER in the environment: a join URL, or `@FILE`
 *   4. `access.json` in the data directory that LABORO_DATA names, or in the default one
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../base/errors.js";
import { refuseForeignDirectory } from "../base/files/private-directory.js";
import {
  type BrokerAccess,
  badAccess,
  normalizeFingerprint,
  parseJoinUrl,
  readJoinUrls,
} from "../protocols/laboro/broker-address.js";

interface FindBrokerOptions {
  /** The value of `--broker` or `--join`: `@FILE`. */
  readonly broker?: string | undefined;
  /** The value of `--data`. */
  readonly data?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

export const ACCESS_FILE = "access.json";

export const dataDirectory = ({ data, env = process.env }: FindBrokerOptions = {}): string =>
  data ?? (env.LABORO_DATA || join(env.HOME || homedir(), ".local", "share", "laboro"));

/** Whether a broker is named, or was started for this user, and so should answer. */
export function isBrokerConfigured(options: FindBrokerOptions = {}): boolean {
  const { broker, data, env = process.env } = options;
  const named = [broker, data, env.LABORO_BROKER, env.LABORO_DATA].some((name) => name !== undefined && name !== "");
  return named || existsSync(join(dataDirectory(options), ACCESS_FILE));
}

/** Throws LABORO_BAD_INPUT for an address that cannot be used, LABORO_BROKER_UNREACHABLE if there is none. */
export function findBroker(options: FindBrokerOptions = {}): BrokerAccess {
  const { broker, data, env = process.env } = options;
  if (broker !== undefined && broker !== "") {
    if (!broker.startsWith("@")) throw badAccess("--broker", ARGUMENT_REFUSED);
    return readJoinUrls(broker, "--broker");
  }
  if (data === undefined && env.LABORO_BROKER !== undefined && env.LABORO_BROKER !== "") {
    return readJoinUrls(env.LABORO_BROKER, "LABORO_BROKER");
  }
  const dir = dataDirectory(options);
  refuseForeignDirectory(dir);
  return fromAccessFile(join(dir, ACCESS_FILE));
}

const ARGUMENT_REFUSED =
  "takes @FILE, a file that holds the broker's URL with its token: every user of this machine can read arguments. " +
  "LABORO_BROKER takes the URL itself";

function fromAccessFile(file: string): BrokerAccess {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    const why = errnoOf(cause) === "ENOENT" ? "is not there" : `cannot be read (${errnoOf(cause)})`;
    throw unreachable(
      `no broker was named, and ${file} ${why}: start one with laboro serve, or name one with --broker or LABORO_BROKER`,
      cause,
    );
  }
  const { url, token, ca } = fieldsOf(text);
  if (typeof url !== "string" || typeof token !== "string") {
    throw unreachable(`${file} does not say where the broker is: start it again, or name one with --broker`);
  }
  const parsed = parseJoinUrl(url, file);
  if (ca === undefined) return { ...parsed, token };
  const caFingerprint = typeof ca === "string" ? normalizeFingerprint(ca) : undefined;
  // Without it any CA of the system would be accepted, which is not what the broker wrote.
  if (caFingerprint === undefined) throw badAccess(file, "has a ca that is not a SHA-256 fingerprint");
  return { ...parsed, token, caFingerprint };
}

function fieldsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

const unreachable = (text: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BROKER_UNREACHABLE", text, { cause });
