/** Addresses and names that can only mean this machine. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (plain === "localhost" || plain.endsWith(".localhost") || plain === "::1") return true;
  return /^(::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(plain);
}

/** The network of an address: a host with one IPv6 address usually has 2^64 of them, so the first 64 bits count. */
export function networkOf(address: string): string {
  if (!address.includes(":") || address.startsWith("::ffff:")) return address;
  const [head = [], tail = []] = address.split("::").map((part) => (part === "" ? [] : part.split(":")));
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  return [...head, ...zeros, ...tail].slice(0, 4).join(":");
}

/** A host in a URL: an IPv6 address has brackets. */
export const inUrl = (host: string): string => (host.includes(":") ? `[${host}]` : host);

interface JoinInfo {
  /** Without token and fingerprint. */
  readonly url: string;
  readonly token: string;
  /** 64 hexadecimal digits: SHA-256 of the CA's certificate. */
  readonly ca?: string;
}

/** `https://TOKEN@HOST:PORT#CA-FINGERPRINT`: all that a peer needs to connect. `client/find-broker.ts` reads it. */
export function joinUrl({ url, token, ca }: JoinInfo): string {
  const { protocol, host } = new URL(url);
  return `${protocol}//${encodeURIComponent(token)}@${host}${ca === undefined ? "" : `#${ca}`}`;
}
