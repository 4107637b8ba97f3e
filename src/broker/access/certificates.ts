/**
 * The broker's own CA and the certificate that it shows, kept in `certificates.json` in the data directory. The CA stays, because join URLs name
 * its fingerprint; the certificate is made anew under it before it expires, and when the broker goes by other names.
 * `ca.pem` is the CA's certificate for tools that want a file.
 */
import { X509Certificate } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writePrivate } from "../../base/private-file.js";

export interface Pair {
  readonly cert: string;
  readonly key: string;
}

interface Kept {
  readonly ca: Pair;
  readonly own: Pair & { readonly names: readonly string[] };
}

/** The CA that all brokers of a group show: the one they have, or else the one that `own` makes. */
export type Agree = (own: () => Promise<Pair>) => Promise<Pair>;

const FILE = "certificates.json";
const DAY = 86_400_000;
const CA_DAYS = 20 * 365;
const OWN_DAYS = 397;
const RENEWED_BEFORE = 30 * DAY;

export class Certificates {
  readonly #dir: string;
  readonly #names: readonly string[];
  readonly #now: () => number;
  readonly #agree: Agree | undefined;
  #kept: Kept | undefined;
  #shown: Pair | undefined;
  #making: Promise<Kept> | undefined;

  /** `names` beyond those that this machine has by itself. */
  constructor(dir: string, names: readonly string[], now: () => number = Date.now, agree?: Agree) {
    this.#dir = dir;
    this.#names = [...new Set([...names, ...ownNames()])].sort();
    this.#now = now;
    this.#agree = agree;
  }

  /** SHA-256 of the CA's certificate, as join URLs have it. */
  async fingerprint(): Promise<string> {
    const { ca } = await this.#current();
    return new X509Certificate(ca.cert).fingerprint256.replaceAll(":", "").toLowerCase();
  }

  /** What is shown to who connects; the same object for as long as it is the same certificate. */
  async shown(): Promise<Pair> {
    const before = this.#kept;
    const { ca, own } = await this.#current();
    // With the CA, so that a peer that knows its fingerprint only can find it in the chain.
    if (this.#shown === undefined || before?.own !== own) this.#shown = { cert: own.cert + ca.cert, key: own.key };
    return this.#shown;
  }

  /** Looked at with each connection, so that no timer need watch for the end of a certificate. */
  async #current(): Promise<Kept> {
    if (this.#kept !== undefined && this.#isGood(this.#kept)) return this.#kept;
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    this.#kept = await this.#making;
    return this.#kept;
  }

  #isGood({ own }: Kept): boolean {
    if (own.names.join() !== this.#names.join()) return false;
    return Date.parse(new X509Certificate(own.cert).validTo) - this.#now() > RENEWED_BEFORE;
  }

  async #make(): Promise<Kept> {
    const path = join(this.#dir, FILE);
    const found = readKept(path);
    const ownCa = async (): Promise<Pair> => found?.ca ?? (await this.#makeCa());
    const ca = this.#agree === undefined ? await ownCa() : await this.#agree(ownCa);
    if (found?.ca.cert === ca.cert && this.#isGood(found)) return found;
    const kept = { ca, own: { ...(await this.#makeOwn(ca)), names: this.#names } };
    writePrivate(path, `${JSON.stringify(kept, null, 2)}\n`);
    writeFileSync(join(this.#dir, "ca.pem"), ca.cert);
    return kept;
  }

  async #makeCa(): Promise<Pair> {
    return this.#generate(`laboro CA ${hostname()}`.slice(0, 64), CA_DAYS, [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, cRLSign: true, critical: true },
    ]);
  }

  #makeOwn(ca: Pair): Promise<Pair> {
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

  async #generate(name: string, days: number, extensions: Extensions, ca?: Pair): Promise<Pair> {
    // It takes long to load, and most brokers are for one machine and need no certificate.
    const { generate } = await import("selfsigned");
    const made = await generate([{ name: "commonName", value: name }], {
      keyType: "ec",
      curve: "P-256",
      algorithm: "sha256",
      // Clocks differ: a worker whose clock is a little behind must not be locked out.
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

function ownNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const usable = addresses.filter(({ address }) => !address.startsWith("fe80:"));
  return ["localhost", hostname(), ...usable.map(({ address }) => address)];
}

function readKept(path: string): Kept | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Kept;
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new LaboroError("LABORO_DATA_CORRUPT", `${path} cannot be read: ${String(cause)}`, { cause });
  }
}
