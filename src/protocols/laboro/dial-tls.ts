/**
 * TLS to a broker that is known by the fingerprint of its CA: the SHA-256 of the CA's certificate, which a join URL
 * contains. The certificate is taken from the server's chain, over a first connection on which nothing is sent. The
 * link is then opened with it as the only CA, so that OpenSSL checks the chain and the system's CAs do not count. The
 * CA signs for its brokers only, so the name in the certificate does not matter: a broker may be reached through a
 * tunnel or by another address.
 */
import { isIP } from "node:net";
import { type ConnectionOptions, connect, type DetailedPeerCertificate } from "node:tls";
import { LaboroError } from "../../base/errors.js";
import { normalizeFingerprint } from "./broker-address.js";
import { tunnelSocket } from "./client-web-socket.js";

/** Certificates by fingerprint. They cannot change, so each is fetched once. */
const caByFingerprint = new Map<string, string>();

/** How to connect to a broker with this CA; undefined if `fetchCa` has not seen its certificate yet. */
export function pinnedTlsOptions(fingerprint: string): ConnectionOptions | undefined {
  const ca = caByFingerprint.get(fingerprint);
  return ca === undefined ? undefined : { ca, rejectUnauthorized: true, checkServerIdentity: () => undefined };
}

/** Finds the certificate with this fingerprint in the server's chain. Rejects with LABORO_BAD_CERTIFICATE. */
export function fetchCa(url: URL, fingerprint: string, signal: AbortSignal, tunnels?: string): Promise<void> {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  return new Promise((resolve, reject) => {
    // Only the fingerprint is checked here. The chain is checked when the certificate is known.
    const servername = isIP(host) === 0 ? host : "";
    const place =
      tunnels === undefined ? { host, port: Number(url.port || 443) } : { path: tunnelSocket(tunnels, url) };
    const socket = connect({ ...place, servername, rejectUnauthorized: false });
    const stop = (): void => void socket.destroy();
    signal.addEventListener("abort", stop, { once: true });
    socket.once("error", reject);
    socket.once("close", () => {
      signal.removeEventListener("abort", stop);
      reject(new Error("the connection ended before a certificate came"));
    });
    socket.once("secureConnect", () => {
      const chain = chainOf(socket.getPeerCertificate(true));
      const found = chain.find((certificate) => fingerprintOf(certificate) === fingerprint);
      if (found === undefined) reject(fingerprintMismatch(url, fingerprint, chain));
      else {
        caByFingerprint.set(fingerprint, pemOf(found.raw));
        resolve();
      }
      socket.destroy();
    });
  });
}

function chainOf(leaf: DetailedPeerCertificate): DetailedPeerCertificate[] {
  const chain: DetailedPeerCertificate[] = [];
  // The chain ends at a certificate that is its own issuer, or with none.
  for (let at: DetailedPeerCertificate | undefined = leaf; at?.raw !== undefined; at = at.issuerCertificate) {
    if (chain.includes(at)) break;
    chain.push(at);
  }
  return chain;
}

const fingerprintOf = (certificate: DetailedPeerCertificate): string | undefined =>
  normalizeFingerprint(certificate.fingerprint256);

function fingerprintMismatch(url: URL, expected: string, chain: readonly DetailedPeerCertificate[]): LaboroError {
  const shown = chain.map((one) => fingerprintOf(one)?.slice(0, 16)).join(", ");
  return new LaboroError(
    "LABORO_BAD_CERTIFICATE",
    `${url.host} is not the broker of this join URL: expected a CA with fingerprint ${expected.slice(0, 16)}…, its chain has ${shown || "none"}`,
  );
}

function pemOf(der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}
