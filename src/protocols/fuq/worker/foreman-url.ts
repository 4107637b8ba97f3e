/**
 * The address of a foreman and its credentials: `@FILE` with `https://PASSWORD@HOST:PORT#FINGERPRINT`, or a URL without
 * a password. Then the password, or `@FILE` with it, is in LABORO_FUQ_TOKEN, because every user of the machine can read
 * arguments. A CA that the system does not trust is given by its fingerprint or as a file.
 */
import { readFileSync } from "node:fs";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { isLoopback } from "../../../base/addresses.js";
import { badInput, errnoOf } from "../../../base/errors.js";
import { normalizeFingerprint } from "../../laboro/broker-address.js";
import { fetchCa, pinnedTlsOptions } from "../../laboro/dial-tls.js";

export interface ForemanUrl {
  /** Without password and fingerprint. */
  readonly url: URL;
  readonly password: string;
  /** SHA-256 of the CA's certificate in lower-case hexadecimal digits. */
  readonly fingerprint?: string | undefined;
  readonly ca?: string | undefined;
  /** The name in the foreman's certificate, if it differs from the host. */
  readonly certificateName?: string | undefined;
}

interface ForemanUrlOptions {
  readonly fuq: string;
  /** A file with the CA's certificate. */
  readonly ca?: string | undefined;
  readonly certificateName?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

const DEFAULT_PORT = "5429";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** `HOST:PORT`, an IPv6 address in brackets. */
export function parseAddress(text: string, option: string): Address {
  const [, v6, host = v6, port] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  if (host !== undefined && port !== undefined && Number(port) <= 65_535) return { host, port: Number(port) };
  throw badInput(`${option}: expected HOST:PORT, got ${text}`);
}

/** Throws LABORO_BAD_INPUT. The message never contains the password. */
export function resolveForemanUrl({ fuq, ca, certificateName, env = process.env }: ForemanUrlOptions): ForemanUrl {
  const text = textOrFile(fuq, "--fuq");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "")
    throw badInput("--fuq: expected https://HOST:PORT, and the password in LABORO_FUQ_TOKEN; or @FILE that holds both");
  if (text === fuq && url.username + url.password !== "")
    throw badInput(
      "--fuq: every user of this machine can read a password in an argument: use LABORO_FUQ_TOKEN, or @FILE",
    );
  if (url.protocol === "http:" && !isLoopback(url.hostname))
    throw badInput(`--fuq: http:// would send the password to ${url.host} unencrypted: use https://`);
  const given = decoded(url.username) || decoded(url.password) || env.LABORO_FUQ_TOKEN || "";
  const password = textOrFile(given, "LABORO_FUQ_TOKEN");
  if (password === "") throw badInput("--fuq: the foreman's password is missing: set LABORO_FUQ_TOKEN");
  const fingerprint = url.hash === "" ? undefined : normalizeFingerprint(decoded(url.hash.slice(1)));
  if (url.hash !== "" && fingerprint === undefined) throw badInput("--fuq: expected a SHA-256 fingerprint after #");
  const bare = new URL(`${url.protocol}//${url.host}/`);
  if (bare.port === "" && !/:\d+(\/|#|$)/.test(text)) bare.port = DEFAULT_PORT;
  return { url: bare, password, fingerprint, ca: ca === undefined ? ca : contentOf(ca, "--fuq-ca"), certificateName };
}

/** Options of a TLS connection to the foreman. Fetches its CA if only the fingerprint is known. */
export async function tlsOptions(foreman: ForemanUrl, signal: AbortSignal): Promise<object> {
  const { url, fingerprint, ca, certificateName } = foreman;
  if (url.protocol !== "https:") return {};
  if (fingerprint !== undefined) {
    if (pinnedTlsOptions(fingerprint) === undefined) await fetchCa(url, fingerprint, signal);
    return pinnedTlsOptions(fingerprint) ?? {};
  }
  const trusted = ca === undefined ? {} : { ca };
  if (certificateName === undefined) return trusted;
  const checkName = (_host: string, shown: PeerCertificate) => checkServerIdentity(certificateName, shown);
  return { ...trusted, servername: certificateName, checkServerIdentity: checkName };
}

const textOrFile = (text: string, what: string): string =>
  text.startsWith("@") ? contentOf(text.slice(1), what).trim() : text;

function contentOf(file: string, what: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    throw badInput(`${what}: the file ${file} cannot be read: ${errnoOf(cause) ?? String(cause)}`, cause);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
