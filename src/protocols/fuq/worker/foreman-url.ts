/**
 * The URL of a foreman and its credentials: `@FILE` that holds `https://PASSWORD@HOST:PORT#FINGERPRINT`; or the URL without the password,
 * which is in LABORO_FUQ_TOKEN then, there too as `@FILE`. Everyone on the machine can see arguments. A certificate that no CA of the
 * system has signed is known by the fingerprint of the CA that has, or by a file with that CA.
 */
import { readFileSync } from "node:fs";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { isLoopback } from "../../../base/addresses.js";
import { badInput, errnoOf } from "../../../base/errors.js";
import { fetchCa, normalizeFingerprint, pinnedTlsOptions } from "../../laboro/dial-tls.js";

export interface ForemanUrl {
  /** Without password and fingerprint. */
  readonly url: URL;
  readonly password: string;
  /** SHA-256 of the CA's certificate in lower-case hexadecimal digits. */
  readonly fingerprint?: string | undefined;
  /** The CA's certificate. */
  readonly ca?: string | undefined;
  /** The name in the foreman's certificate, where it is not the host's. */
  readonly certificateName?: string | undefined;
}

interface ForemanUrlOptions {
  /** What `--fuq` said. */
  readonly fuq: string;
  /** A file with the CA's certificate. */
  readonly ca?: string | undefined;
  readonly certificateName?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

const DEFAULT_PORT = "5429";

/** Throws LABORO_BAD_INPUT. The password never stands in the message. */
export function resolveForemanUrl({ fuq, ca, certificateName, env = process.env }: ForemanUrlOptions): ForemanUrl {
  const text = textOrFile(fuq, "--fuq");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    throw badInput("--fuq: expected https://HOST:PORT, and the password in LABORO_FUQ_TOKEN; or @FILE that holds both");
  }
  if (text === fuq && url.username + url.password !== "") {
    throw badInput(
      "--fuq has the password in an argument, which every user of this machine can read: use LABORO_FUQ_TOKEN, or @FILE",
    );
  }
  if (url.protocol === "http:" && !isLoopback(url.hostname)) {
    throw badInput(
      `--fuq: the password would go to ${url.host} in the clear: http:// is for this machine, use https://`,
    );
  }
  const given = decoded(url.username) || decoded(url.password) || env.LABORO_FUQ_TOKEN || "";
  const password = textOrFile(given, "LABORO_FUQ_TOKEN");
  if (password === "") throw badInput("--fuq: the foreman's password is missing: LABORO_FUQ_TOKEN is the place for it");
  const fingerprint = url.hash === "" ? undefined : normalizeFingerprint(decoded(url.hash.slice(1)));
  if (url.hash !== "" && fingerprint === undefined)
    throw badInput("--fuq: what stands behind # is no SHA-256 fingerprint");
  const bare = new URL(`${url.protocol}//${url.host}/`);
  if (bare.port === "" && !/:\d+(\/|#|$)/.test(text)) bare.port = DEFAULT_PORT;
  return { url: bare, password, fingerprint, ca: ca === undefined ? ca : contentOf(ca, "--fuq-ca"), certificateName };
}

/** How TLS to this foreman is spoken. Asks it for its certificate where only a fingerprint is known. */
export async function tlsOptions(foreman: ForemanUrl, signal: AbortSignal): Promise<object> {
  const { url, fingerprint, ca, certificateName } = foreman;
  if (url.protocol !== "https:") return {};
  if (fingerprint !== undefined) {
    if (pinnedTlsOptions(fingerprint) === undefined) await fetchCa(url, fingerprint, signal);
    return pinnedTlsOptions(fingerprint) ?? {};
  }
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(certificateName === undefined
      ? {}
      : {
          servername: certificateName,
          checkServerIdentity: (_host: string, shown: PeerCertificate) => checkServerIdentity(certificateName, shown),
        }),
  };
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
