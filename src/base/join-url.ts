/** `https://TOKEN@HOST:PORT#CA-FINGERPRINT`: all that is needed to connect to a broker, in one line. `client/find-broker.ts` reads it. */

export interface JoinInfo {
  /** Without token and fingerprint. */
  readonly url: string;
  readonly token: string;
  /** 64 hexadecimal digits: SHA-256 of the CA's certificate. */
  readonly ca?: string;
}

export function joinUrl({ url, token, ca }: JoinInfo): string {
  const { protocol, host } = new URL(url);
  return `${protocol}//${encodeURIComponent(token)}@${host}${ca === undefined ? "" : `#${ca}`}`;
}
