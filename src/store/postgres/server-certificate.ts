/**
 * `sslrootcert` in the address of a database: the file with the CA of the server's certificate. The client library does
 * not read it, and would send it to the server as a setting.
 */
import { readFileSync } from "node:fs";
import { badInput, whyUnreadable } from "../../base/errors.js";

interface TlsOptions {
  readonly ca: string;
  readonly checkServerIdentity?: () => undefined;
}

export interface ServerAddress {
  readonly url: string;
  readonly ssl?: TlsOptions;
}

/**
 * As in libpq: the certificate has to be signed by this CA whenever TLS is used, and the name in it counts with
 * `sslmode=verify-full`. Several hosts in one address are no URL to Node, so only what follows the `?` is parsed.
 */
export function withServerCa(url: string): ServerAddress {
  const at = url.indexOf("?");
  const params = new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
  const file = params.get("sslrootcert");
  // `system` are the CAs that Node trusts; the library knows it.
  if (file === null || file === "system") return { url };
  const mode = params.get("sslmode");
  params.delete("sslrootcert");
  params.delete("sslmode");
  const plain = `${url.slice(0, at)}?${params}`;
  if (mode === "disable") return { url: plain };
  let ca: string;
  try {
    ca = readFileSync(file, "utf8");
  } catch (cause) {
    throw badInput(`sslrootcert: ${file} cannot be read: ${whyUnreadable(cause)}`, cause);
  }
  return { url: plain, ssl: mode === "verify-full" ? { ca } : { ca, checkServerIdentity: () => undefined } };
}
