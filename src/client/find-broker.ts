/**
 * The address of the broker and the token. The first of these that exists:
 *   1. what was given explicitly: `@FILE`, a file that holds a join URL
 *   2. `access.json` in the data directory that was given explicitly; a broker on this machine writes it
 *   3. LABORO_BROKER in the environment: a join URL, or `@FILE`
 *   4. `access.json` in the data directory that LABORO_DATA names, or in the default one
 *
 * A join URL is `https://TOKEN@HOST:PORT#CA-FINGERPRINT`; `http://` is for this machine only. Several join URLs, of brokers
 * of one group, are separated by commas or spaces.
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { isLoopback } from "../base/addresses.js";
import { badInput, errnoOf, LaboroError } from "../base/errors.js";
import { refuseForeignDirectory } from "../base/files/private-directory.js";
import { normalizeFingerprint } from "../protocols/laboro/dial-tls.js";

export interface BrokerAccess {
  /** Without token and fingerprint. */
  readonly urls: readonly string[];
  readonly token: string;
  /** SHA-256 of the CA's certificate in lower-case hexadecimal digits. */
  readonly caFingerprint?: string;
  /** Where this was found, for messages. */
  readonly source: string;
}

export interface FindBrokerOptions {
  /** The value of `--broker` or `--join`: `@FILE`. */
  readonly broker?: string | undefined;
  /** The value of `--data`. */
  readonly data?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

export const ACCESS_FILE = "access.json";

export const dataDirectory = ({ data, env = process.env }: FindBrokerOptions = {}): string =>
  data ?? (env.LABORO_DATA || join(env.HOME || homedir(), ".local", "share", "laboro"));

/** Whether a broker was named, or has been started for this user: one that should answer. */
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
    return fromText(broker, "--broker");
  }
  if (data === undefined && env.LABORO_BROKER !== undefined && env.LABORO_BROKER !== "") {
    return fromText(env.LABORO_BROKER, "LABORO_BROKER");
  }
  const dir = dataDirectory(options);
  refuseForeignDirectory(dir);
  return fromAccessFile(join(dir, ACCESS_FILE));
}

/** Throws LABORO_BAD_INPUT. The message never contains the token: messages end up in logs. */
export function parseJoinUrls(text: string, source: string): BrokerAccess {
  const all = text.split(/[\s,]+/).filter((part) => part !== "");
  const found = all.map((part) => parseOne(part, source));
  const [first] = found;
  if (first === undefined) throw badAccess(source, `is empty, expected ${JOIN_URL_FORMAT}`);
  for (const { token, caFingerprint } of found) {
    if (token !== first.token || caFingerprint !== first.caFingerprint) {
      throw badAccess(source, "names brokers with different tokens or fingerprints: those of one group have the same");
    }
  }
  if (first.token === "") throw badAccess(source, `has no token, expected ${JOIN_URL_FORMAT}`);
  return { ...first, urls: found.flatMap(({ urls }) => urls) };
}

const ARGUMENT_REFUSED =
  "takes @FILE, a file that holds the broker's URL with its token: every user of this machine can read arguments. " +
  "LABORO_BROKER takes the URL itself";

const JOIN_URL_FORMAT = "https://TOKEN@HOST:PORT#CA-FINGERPRINT, as laboro serve prints it";

function parseOne(text: string, source: string): BrokerAccess {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    throw badAccess(source, `is no join URL, expected ${JOIN_URL_FORMAT}`);
  }
  if (url.protocol === "http:" && !isLoopback(url.hostname)) {
    throw badAccess(
      source,
      `would send the token to ${url.host} in the clear: http:// is for this machine, use https://`,
    );
  }
  const token = decoded(url.username) ?? decoded(url.password) ?? "";
  const urls = [`${url.protocol}//${url.host}`];
  const given = url.hash.slice(1);
  if (given === "") return { urls, token, source };
  const caFingerprint = normalizeFingerprint(decoded(given) ?? "");
  if (caFingerprint === undefined) {
    throw badAccess(source, `has ${given.length} characters behind #, expected the 64 digits of a SHA-256 fingerprint`);
  }
  return { urls, token, caFingerprint, source };
}

function fromText(text: string, source: string): BrokerAccess {
  if (!text.startsWith("@")) return parseJoinUrls(text, source);
  const file = text.slice(1);
  try {
    return parseJoinUrls(readFileSync(file, "utf8"), `${source}: ${file}`);
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badAccess(source, `names the file ${file}, which cannot be read: ${errnoOf(cause) ?? String(cause)}`, cause);
  }
}

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
  const parsed = parseOne(url, file);
  if (ca === undefined) return { ...parsed, token };
  const caFingerprint = typeof ca === "string" ? normalizeFingerprint(ca) : undefined;
  // Without it any CA of the system would be accepted: that is not what the broker wrote.
  if (caFingerprint === undefined) throw badAccess(file, "has a ca that is no SHA-256 fingerprint");
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

function decoded(text: string): string | undefined {
  try {
    return text === "" ? undefined : decodeURIComponent(text);
  } catch {
    return text;
  }
}

const badAccess = (source: string, text: string, cause?: unknown): LaboroError => badInput(`${source} ${text}`, cause);

const unreachable = (text: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BROKER_UNREACHABLE", text, { cause });
