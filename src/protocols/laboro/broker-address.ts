/**
 * The address of the broker for a worker or client: a URL, or a broker in this process.
 *
 * A join URL also contains the credentials: `https://TOKEN@HOST:PORT#CA-FINGERPRINT`. `http://` is for this machine
 * only. Several join URLs, of brokers of one group, are separated by commas or spaces. `@FILE` is a file with join URLs.
 */
import { readFileSync } from "node:fs";
import { isLoopback } from "../../base/addresses.js";
import { badInput, LaboroError, whyUnreadable } from "../../base/errors.js";

/** What `startBroker` returns, for workers and clients in the same process. */
export interface InProcessBroker {
  /** The token for URLs that have none. */
  readonly token: string;
  /** One end of a new link. Throws LABORO_BAD_TOKEN, or LABORO_BROKER_UNREACHABLE once it has stopped. */
  openLink(token: string): object;
}

export type BrokerAddress = string | InProcessBroker;

export const isInProcess = (address: unknown): address is InProcessBroker =>
  typeof address === "object" && address !== null && "openLink" in address;

interface BrokerOption {
  readonly broker: string | readonly string[] | InProcessBroker;
  readonly token?: string | undefined;
  readonly caFingerprint?: string | undefined;
}

/** Reads `broker`, `token` and `caFingerprint` of workers and clients. Without a token, `broker` is a join URL. */
export function addressesOf({ broker, token, caFingerprint }: BrokerOption): {
  readonly urls: readonly BrokerAddress[];
  readonly token: string;
  readonly caFingerprint?: string;
} {
  if (isInProcess(broker)) return { urls: [broker], token: token ?? broker.token };
  const urls = typeof broker === "string" ? [broker] : broker;
  if (!Array.isArray(urls) || !urls.every((url) => typeof url === "string"))
    throw badAccess("broker", `is ${broker === undefined ? "missing" : "no URL"}, expected ${JOIN_URL_FORMAT}`);
  if (token === undefined) return readJoinUrls(urls.join(" "), "broker");
  for (const url of urls) checkUrl(url, "broker", /^(http|ws)s?:$/);
  return caFingerprint === undefined ? { urls, token } : { urls, token, caFingerprint };
}

export interface BrokerAccess {
  /** Without token and fingerprint. */
  readonly urls: readonly string[];
  readonly token: string;
  /** SHA-256 of the CA's certificate in lower-case hexadecimal digits. */
  readonly caFingerprint?: string;
  /** Where this was found, for messages. */
  readonly source: string;
}

/** Of join URLs, or of `@FILE`. Throws as `parseJoinUrls`. */
export function readJoinUrls(text: string, source: string): BrokerAccess {
  if (!text.startsWith("@")) return parseJoinUrls(text, source);
  const file = text.slice(1);
  try {
    return parseJoinUrls(readFileSync(file, "utf8"), `${source}: ${file}`);
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badAccess(source, `names the file ${file}, which cannot be read: ${whyUnreadable(cause)}`, cause);
  }
}

/** Throws LABORO_BAD_INPUT. The message never contains the token: messages end up in logs. */
export function parseJoinUrls(text: string, source: string): BrokerAccess {
  const all = text.split(/[\s,]+/).filter((part) => part !== "");
  const found = all.map((part) => parseJoinUrl(part, source));
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

const JOIN_URL_FORMAT =
  "a join URL, https://TOKEN@HOST:PORT#CA-FINGERPRINT, or @FILE with one: " +
  "laboro serve writes client.url for clients, join.url for workers";

export function parseJoinUrl(text: string, source: string): BrokerAccess {
  const url = checkUrl(text, source, /^https?:$/);
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

function checkUrl(text: string, source: string, protocols: RegExp): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !protocols.test(url.protocol) || url.hostname === "") {
    throw badAccess(source, `is no join URL, expected ${JOIN_URL_FORMAT}`);
  }
  if (!/^(https|wss):$/.test(url.protocol) && !isLoopback(url.hostname)) {
    throw badAccess(
      source,
      `would send the token to ${url.host} in the clear: http:// is for this machine, use https://`,
    );
  }
  return url;
}

/** 64 hexadecimal digits, with colons between the pairs or without; undefined for anything else. */
export function normalizeFingerprint(text: string): string | undefined {
  const digits = text.replaceAll(":", "").toLowerCase();
  return /^[0-9a-f]{64}$/.test(digits) ? digits : undefined;
}

function decoded(text: string): string | undefined {
  try {
    return text === "" ? undefined : decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const badAccess = (source: string, text: string, cause?: unknown): LaboroError =>
  badInput(`${source} ${text}`, cause);
