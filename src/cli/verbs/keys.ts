/** `laboro keys`: which peers may connect to ZeroMQ listeners with CURVE. */
import { existsSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { Argument, Command } from "commander";
import { isCurveKey, newCurveKeyPair } from "../../base/curve-key.js";
import { badInput } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openPrivateDirectory, refuseForeignDirectory } from "../../base/files/private-directory.js";
import { type KeyRing, readKeyRing, writeKeyRing } from "../../broker/access/curve-keys.js";
import { dataDirectory } from "../../client/find-broker.js";
import { printJson, printLines } from "../lib/print.js";
import { suggestion } from "../lib/suggest.js";
import { table } from "../lib/terminal/table.js";
import { detectTerminal } from "../lib/terminal/terminal.js";

interface Options {
  readonly data?: string;
  readonly json?: boolean;
}

export function keys(): Command {
  return new Command("keys")
    .description(
      "Manage the CURVE keys of laboro serve --curve, in the broker's data directory. The first key also creates the broker's own pair. Restart a running broker after a change.",
    )
    .addArgument(
      new Argument("[action]", "what to do").choices(["list", "new", "allow", "deny", "show"]).default("list"),
    )
    .argument("[name]", "name of a worker or client; new and show without a name are about the broker's own keys")
    .argument("[key]", "for allow: the public key of the peer, 40 characters")
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--json", "print one JSON document, without secret keys")
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
new NAME creates a key pair for a peer, allows it, and writes the keys that the peer needs to keys/NAME.json, which only you can read.

Examples:
  laboro keys new
  laboro keys new node17
  laboro keys allow alice 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7'
  laboro keys deny node17`;

async function run(action: string, name: string | undefined, key: string | undefined, options: Options): Promise<void> {
  const dir = resolve(dataDirectory(options));
  refuseForeignDirectory(dir);
  if (name !== undefined && !/^[\w.@-]+$/.test(name))
    throw badInput(`invalid name ${name}: expected letters, digits and . @ - _`);
  if (key !== undefined && action !== "allow") throw badInput(`${action} takes no key`);
  if (action === "list") list(loadKeyRing(dir), options);
  else if (action === "show") show(loadKeyRing(dir), name, options);
  else if (action === "new") await makeNew(dir, name);
  else if (action === "allow") await allow(dir, name, key);
  else deny(dir, name);
}

const loadKeyRing = (dir: string): KeyRing => {
  const ring = readKeyRing(dir);
  if (ring === undefined)
    throw badInput(`there are no keys in ${dir} yet: laboro keys new creates those of the broker`);
  return ring;
};

function list(ring: KeyRing, { json }: Options): void {
  const rows = [{ name: "broker", key: ring.publicKey }, ...listed(ring)];
  if (json === true) printJson({ broker: ring.publicKey, allowed: listed(ring) });
  else
    printLines(
      ...table(
        [{ title: "NAME" }, { title: "PUBLIC KEY" }],
        rows.map(({ name, key }) => [name, key]),
        detectTerminal(),
      ),
    );
}

const listed = (ring: KeyRing): { name: string; key: string }[] =>
  Object.entries(ring.known).map(([name, key]) => ({ name, key }));

function show(ring: KeyRing, name: string | undefined, { json }: Options): void {
  const key = name === undefined ? ring.publicKey : keyOf(ring, name);
  if (json === true) printJson({ name: name ?? "broker", key });
  else printLines(key);
}

async function makeNew(dir: string, name: string | undefined): Promise<void> {
  const before = readKeyRing(dir);
  if (name === undefined && before !== undefined) {
    throw badInput(
      `the broker has its keys already, and peers that know them could not connect with new ones: remove ${join(dir, "curve.json")} first`,
    );
  }
  const ring = before ?? createKeyRing(dir);
  if (name === undefined) {
    printLines(ring.publicKey);
    return;
  }
  const file = join(dir, "keys", `${name}.json`);
  if (Object.hasOwn(ring.known, name) || existsSync(file))
    throw badInput(`${name} has a key already: laboro keys deny ${name}`);
  const pair = newCurveKeyPair();
  mkdirSync(join(dir, "keys"), { recursive: true, mode: 0o700 });
  writeFileAtomically(file, `${JSON.stringify({ ...pair, serverKey: ring.publicKey }, null, 2)}\n`);
  writeKeyRing(dir, { ...ring, known: { ...ring.known, [name]: pair.publicKey } });
  printLines(file);
}

function createKeyRing(dir: string): KeyRing {
  openPrivateDirectory(dir);
  const ring: KeyRing = { ...newCurveKeyPair(), known: {} };
  writeKeyRing(dir, ring);
  return ring;
}

async function allow(dir: string, name: string | undefined, key: string | undefined): Promise<void> {
  if (name === undefined || key === undefined) throw badInput("allow takes a name and a public key");
  if (!isCurveKey(key)) throw badInput("a public key is 40 characters of Z85, as ZeroMQ writes it");
  const ring = readKeyRing(dir) ?? createKeyRing(dir);
  if (Object.hasOwn(ring.known, name)) throw badInput(`${name} has a key already: laboro keys deny ${name}`);
  writeKeyRing(dir, { ...ring, known: { ...ring.known, [name]: key } });
  printLines(`${name} may connect; the public key of the broker is ${ring.publicKey}`);
}

function deny(dir: string, name: string | undefined): void {
  if (name === undefined) throw badInput("deny takes a name");
  const ring = loadKeyRing(dir);
  keyOf(ring, name);
  const { [name]: _, ...known } = ring.known;
  writeKeyRing(dir, { ...ring, known });
  const file = join(dir, "keys", `${name}.json`);
  printLines(`${name} may no longer connect${existsSync(file) ? `; ${file} can be deleted` : ""}`);
}

function keyOf({ known }: KeyRing, name: string): string {
  const key = Object.hasOwn(known, name) ? known[name] : undefined;
  if (key !== undefined) return key;
  throw badInput(`there is no key for ${name}${suggestion(name, Object.keys(known))}`);
}
