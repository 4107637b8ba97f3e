/** `https://TOKEN@HOST:PORT#CA-FINGERPRINT`: all that is needed to reach a broker and be let in, in one line. */
import { LaboroError } from "../model/errors.js";

export interface Joining {
  /** Without token and fingerprint. */
  readonly url: string;
  readonly token?: string;
  /** 64 hexadecimal digits: SHA-256 of the CA's certificate. */
  readonly ca?: string;
}

export function joinUrl({ url, token, ca }: Joining): string {
  const { protocol, host } = new URL(url);
  const name = token === undefined ? "" : `${encodeURIComponent(token)}@`;
  return `${protocol}//${name}${host}${ca === undefined ? "" : `#${ca}`}`;
}

export function readJoinUrl(text: string): Joining {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    throw new LaboroError(
      "LABORO_BAD_INPUT",
      "the broker's URL: expected https://TOKEN@HOST:PORT#FINGERPRINT or http://HOST:PORT",
    );
  }
  const ca = url.hash.slice(1).replaceAll(":", "").toLowerCase();
  if (ca !== "" && !/^[0-9a-f]{64}$/.test(ca)) {
    throw new LaboroError("LABORO_BAD_INPUT", "the broker's URL: expected 64 hexadecimal digits behind #");
  }
  const token = decodeURIComponent(url.username);
  return { url: url.origin, ...(token === "" ? {} : { token }), ...(ca === "" ? {} : { ca }) };
}

/** A host as a URL has it. */
export const inUrl = (host: string): string => (host.includes(":") ? `[${host}]` : host);
