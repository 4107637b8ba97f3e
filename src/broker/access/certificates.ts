/**
 * The broker's own CA and server certificate, in `certificates.json` in the data directory. The CA never changes,
 * because join URLs contain its fingerprint. The certificate is renewed before it expires, and when the broker's host
 * names change. Tools that want a file find the CA's certificate in `ca.pem`.
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";

export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

interface StoredCertificates {
  readonly ca: CertificatePair;
  readonly own: CertificatePair & { readonly names: readonly string[] };
}

/** The CA of a group of brokers: the stored one, or else the one that `own` makes. */
export type AgreeOnCa = (own: () => Promise<CertificatePair>) => Promise<CertificatePair>;

const FILE = "certificates.json";
const DAY = 86_400_000;
const CA_DAYS = 20 * 365;
const OWN_DAYS = 397;
const RENEWED_BEFORE = 30 * DAY;

export class Certificates {
  readonly #dir: string;
  readonly #names: readonly string[];
  readonly #now: () => number;
  readonly #agree: AgreeOnCa | undefined;
  #stored: StoredCertificates | undefined;
  #serverCertificate: CertificatePair | undefined;
  #making: Promise<StoredCertificates> | undefined;

  /** `names` are added to the host names and addresses of this machine. */
  constructor(dir: string, names: readonly string[], now: () => number = Date.now, agree?: AgreeOnCa) {
    this.#dir = dir;
    this.#names = [...new Set([...names, ...localHostNames()])].sort();
    this.#now = now;
    this.#agree = agree;
  }

  /** SHA-256 of the CA's certificate, as in join URLs. */
  async fingerprint(): Promise<string> {
    const { ca } = await this.#current();
    return new X509Certificate(ca.cert).fingerprint256.replaceAll(":", "").toLowerCase();
  }

  /** Returns the same object as long as the certificate is the same. */
  async serverCertificate(): Promise<CertificatePair> {
    const before = this.#stored;
    const { ca, own } = await this.#current();
    // Includes the CA's certificate, so that a peer that has only its fingerprint finds it in the chain.
    if (this.#serverCertificate === undefined || before?.own !== own)
      this.#serverCertificate = { cert: own.cert + ca.cert, key: own.key };
    return this.#serverCertificate;
  }

  /** Called with each connection, so no timer is needed to renew the certificate. */
  async #current(): Promise<StoredCertificates> {
    if (this.#stored !== undefined && this.#isValid(this.#stored)) return this.#stored;
    this.#making ??= this.#loadOrCreate().finally(() => {
      this.#making = undefined;
    });
    this.#stored = await this.#making;
    return this.#stored;
  }

  #isValid({ own }: StoredCertificates): boolean {
    if (own.names.join() !== this.#names.join()) return false;
    return Date.parse(new X509Certificate(own.cert).validTo) - this.#now() > RENEWED_BEFORE;
  }

  async #loadOrCreate(): Promise<StoredCertificates> {
    const found = storedCertificates(this.#dir);
    const ownCa = async (): Promise<CertificatePair> => found?.ca ?? (await this.#makeCa());
    const ca = this.#agree === undefined ? await ownCa() : await this.#agree(ownCa);
    if (found?.ca.cert === ca.cert && this.#isValid(found)) return found;
    const stored = { ca, own: { ...(await this.#makeOwn(ca)), names: this.#names } };
    writeFileAtomically(join(this.#dir, FILE), `${JSON.stringify(stored, null, 2)}\n`);
    writeFileAtomically(join(this.#dir, "ca.pem"), ca.cert);
    return stored;
  }

  async #makeCa(): Promise<CertificatePair> {
    return this.#generate(`laboro CA ${hostname()}`.slice(0, 64), CA_DAYS, [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, cRLSign: true, critical: true },
    ]);
  }

  #makeOwn(ca: CertificatePair): Promise<CertificatePair> {
    const altNames = this.#names.map((name) =>
      isIP(name) === 0 ? { type: 2 as const, value: name } : { type: 7 as const, ip: name },
    );
    const extensions: Extensions = [
      { name: "basicConstraints", cA: false, critical: true },
      { name: "keyUsage", digitalSignature: true, critical: true },
      { name: "extKeyUsage", serverAuth: true },
      { name: "subjectAltName", altNames },
    ];
    return this.#generate(`laboro ${hostname()}`.slice(0, 64), OWN_DAYS, extensions, ca);
  }

  async #generate(name: string, days: number, extensions: Extensions, ca?: CertificatePair): Promise<CertificatePair> {
    // Slow to load. Most brokers serve one machine and need no certificate.
    const { generate } = await import("selfsigned");
    const made = await generate([{ name: "commonName", value: name }], {
      keyType: "ec",
      curve: "P-256",
      algorithm: "sha256",
      // Clocks differ: a worker whose clock is a little behind must be able to connect.
      notBeforeDate: new Date(this.#now() - DAY),
      notAfterDate: new Date(this.#now() + days * DAY),
      extensions,
      ...(ca === undefined ? {} : { ca }),
    });
    return { cert: withNewline(made.cert), key: withNewline(made.private) };
  }
}

type Extensions = NonNullable<NonNullable<Parameters<typeof import("selfsigned").generate>[1]>["extensions"]>;

const withNewline = (pem: string): string => `${pem.replaceAll("\r\n", "\n").trim()}\n`;

function localHostNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const usable = addresses.filter(({ address }) => !address.startsWith("fe80:"));
  return ["localhost", hostname(), ...usable.map(({ address }) => address)];
}

export function storedCertificates(dir: string): StoredCertificates | undefined {
  const path = join(dir, FILE);
  try {
    const stored = JSON.parse(readFileSync(path, "utf8")) as StoredCertificates;
    for (const { cert } of [stored.ca, stored.own]) new X509Certificate(cert);
    return stored;
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new LaboroError("LABORO_DATA_CORRUPT", `${path} cannot be read: ${String(cause)}`, { cause });
  }
}
