/** `laboro doctor`: check an installation, with one line for each check. */
import * as fs from "node:fs";
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { Command } from "commander";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { networkFilesystem } from "../../base/files/filesystem.js";
import { acquireLock } from "../../base/files/lock.js";
import { distrustReason, octal } from "../../base/files/private-directory.js";
import { formatSize, pluralize, shortDuration } from "../../base/format.js";
import { packageVersion } from "../../base/package.js";
import { storedCertificates } from "../../broker/access/certificates.js";
import { loadOrCreateAdminToken, storedTokens } from "../../broker/access/tokens.js";
import { dataDirectory } from "../../client/find-broker.js";
import { damageReports, findDamage } from "../../store/sqlite/damage.js";
import { findMiscounted, inspectDatabase } from "../../store/sqlite/database.js";
import {
  addBrokerOptions,
  type BrokerChoice,
  connectToBroker,
  isConfigured,
  localDataOf,
  resolveBroker,
} from "../lib/broker-connection.js";
import { EXIT } from "../lib/failures.js";
import { printJson, printLines } from "../lib/print.js";
import type { OperationOutput } from "../lib/result-text.js";
import { HOST_FORMAT } from "../lib/ssh/connection.js";
import { resolveStoreUrl } from "../lib/store-url.js";
import { detectTerminal, escapeControls, paint, stateColour, type Terminal } from "../lib/terminal/terminal.js";
import { type Check, checkPostgres, fail, messageOf, ok, warn } from "./doctor/postgres.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
  readonly store?: string;
}

export function doctor(): Command {
  const command = new Command("doctor")
    .description(
      "Check this machine, the data directory and the connection to the broker. Each line of the output is ok, warn or FAIL and says what to do. " +
        "Exit with 1 if a check failed. With machines, check whether workers there could join over ssh, from here and from there.",
    )
    .argument("[hosts...]", HOST_FORMAT)
    .option("--json", "print one JSON document")
    .option("--store <url>", "also check this PostgreSQL database; @FILE reads the URL (default: $LABORO_STORE)")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro doctor\n  laboro doctor --broker @client.url\n  laboro doctor node1 ada@node2:2222\n  laboro doctor --store postgres://laboro@db/laboro",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(words: readonly string[], options: Options): Promise<void> {
  const isLocal = options.local === true;
  const dir = isLocal ? localDataOf(options) : dataDirectory({ data: options.data });
  const store = resolveStoreUrl(options.store);
  const database = store === undefined ? [] : await checkPostgres(store);
  const checks =
    words.length > 0
      ? await hostChecks(words, options)
      : [...checkMachine(), ...checkDataDirectory(dir), ...database, ...(isLocal ? [] : await checkBroker(options))];
  const terminal = detectTerminal();
  if (options.json === true) printJson({ checks });
  else printLines(...checks.map((check) => lineOf(check, terminal)));
  if (checks.some(({ state }) => state === "FAIL")) process.exitCode = EXIT.failed;
}

async function hostChecks(words: readonly string[], options: Options): Promise<Check[]> {
  const { checkHosts } = await import("./doctor/hosts.js");
  const isKnown = options.local !== true && isConfigured(options);
  const here = isKnown ? await checkBroker(options) : [];
  const access = here.some(({ state }) => state === "FAIL") || !isKnown ? undefined : resolveBroker(options);
  return [...here, ...(await checkHosts(words, access))];
}

function lineOf({ state, message, remedy }: Check, terminal: Terminal): string {
  const head = paint(terminal, stateColour(state), state.padEnd(4));
  return `${head}  ${escapeControls(message)}${remedy === undefined ? "" : `; ${escapeControls(remedy)}`}`;
}

/** The oldest release of each line that loads ES modules by require(), as in `engines`. Newer lines all do. */
const OLDEST_NODE: Readonly<Record<number, number>> = { 20: 19, 22: 12 };
const NEWEST_LISTED = 22;
/** A worker needs a few descriptors for each task, a broker one for each connection. */
const FEW_FILES = 1_024;

function checkMachine(): Check[] {
  return [checkNode(process.versions.node), checkShell("/bin/sh"), ...checkOpenFiles(readLimits())];
}

export function checkNode(version: string): Check {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const oldest = OLDEST_NODE[major];
  const good = oldest === undefined ? major > NEWEST_LISTED : minor >= oldest;
  const what = `laboro ${packageVersion()} on Node ${version}`;
  return good ? ok(what) : fail(what, "use Node 20.19 or a later 20, or Node 22.12 or newer");
}

function checkShell(path: string): Check {
  try {
    accessSync(path, constants.X_OK);
    return ok(`${path} is there`);
  } catch {
    return fail(`${path} cannot be run`, "commands given as one line need it: install a shell there");
  }
}

function checkOpenFiles(limits: string): Check[] {
  // Node raises its soft limit to the hard limit.
  const [, hard] = /^Max open files\s+\S+\s+(\S+)/m.exec(limits) ?? [];
  return hard === undefined ? [] : checkFileLimit(hard);
}

export function checkFileLimit(hard: string): Check[] {
  const what = `${hard} files may be open at once (ulimit -Hn)`;
  if (hard === "unlimited" || Number(hard) >= FEW_FILES) return [ok(what)];
  return [warn(what, `raise it with ulimit -n ${FEW_FILES} before laboro starts, or use fewer slots`)];
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    // Only Linux has this file.
    return "";
  }
}

const TIMEOUT_MS = 5_000;
/** With a larger difference, times of several machines in one list are misleading. */
const CLOCK_MS = 2_000;

async function checkBroker(choice: BrokerChoice): Promise<Check[]> {
  if (!isConfigured(choice))
    return [ok("no broker is configured: laboro run brings its own; laboro serve starts one for many machines")];
  const file = fileNamed(choice.broker ?? process.env.LABORO_BROKER ?? "");
  return [...(file === undefined ? [] : [checkFile(file)]), ...(await checkLink(choice))];
}

async function checkLink(choice: BrokerChoice): Promise<Check[]> {
  try {
    const { urls, source } = resolveBroker(choice);
    const client = await connectToBroker(choice, TIMEOUT_MS);
    try {
      const asked = Date.now();
      const status = await client.ask("status", {});
      const took = Date.now() - asked;
      const here = asked + took / 2;
      return [
        ok(`the broker at ${urls.join(", ")} answers in ${shortDuration(took)} (found by ${source})`),
        checkVersion(status.version),
        checkClock(status.started + status.uptimeMs - here),
        checkWorkers(status),
      ];
    } finally {
      client.close();
    }
  } catch (cause) {
    return [fail(messageOf(cause), remedyFor(cause))];
  }
}

function checkWorkers({ refusing, halted, workers, slots }: OperationOutput<"status">): Check {
  if (refusing !== undefined)
    return fail(`it takes nothing new: ${refusing.message}`, `see ${refusing.code} in docs/reference/errors.md`);
  if (halted !== undefined) return warn(`it assigns nothing: ${halted}`);
  if (workers.connected === 0) return warn("it has no worker, so that nothing can run", "start one: laboro worker");
  return ok(`it has ${pluralize(workers.connected, "worker")} with ${pluralize(slots.total, "slot")}`);
}

function checkVersion(version: string): Check {
  const own = packageVersion();
  if (version === own) return ok(`it is laboro ${version}, as here`);
  return warn(
    `it is laboro ${version}, here is ${own}`,
    "both ends need the same version of the link; update the older one",
  );
}

export function checkClock(difference: number): Check {
  const offset = Math.abs(difference);
  const what = `its clock is ${shortDuration(offset)} ${difference < 0 ? "behind" : "ahead of"} this one`;
  if (offset < CLOCK_MS) return ok("its clock agrees with this one");
  return warn(what, "set both by NTP: times in lists are wrong otherwise");
}

function remedyFor(cause: unknown): string | undefined {
  const code = cause instanceof LaboroError ? cause.code : undefined;
  if (code === "LABORO_BAD_TOKEN") return "its token is a different one: copy the join URL or access.json again";
  if (code === "LABORO_BAD_INPUT") return "correct it";
  // Other messages say what to do.
  if (!messageOf(cause).startsWith("no broker answers")) return undefined;
  return "is it running, is the address right, and does a firewall let its port through?";
}

const fileNamed = (broker: string): string | undefined => (broker.startsWith("@") ? broker.slice(1) : undefined);

function checkFile(file: string): Check {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode;
  if (mode === undefined) return fail(`${file} is not there`, "it should hold the join URL that laboro serve printed");
  if ((mode & 0o077) === 0) return ok(`only you can read ${file}`);
  return warn(`others can read ${file}, which holds a token`, `chmod 600 ${file}`);
}

const DATABASE = "store.db";
const RESTORE = "restore it from a backup, or move it away to start with an empty one";
const LOW_SPACE = 1024 ** 3;
const FEW_INODES = 1_000;
const NO_SPACE = 64 * 1024 ** 2;
/** Files with tokens or keys. */
const SECRETS = /^(?:access|tokens|certificates|curve)\.json$|^(?:join|client)\.url$/;

function checkDataDirectory(dir: string): Check[] {
  const foreign = distrustReason(dir);
  if (foreign !== undefined)
    return [
      fail(
        `the data directory ${dir} is not used: ${foreign}`,
        "remove the access of others, or give another with --data",
      ),
    ];
  const stat = fs.statSync(dir, { throwIfNoEntry: false });
  if (stat === undefined) return [checkParent(dir), ...checkDisk(dir)];
  if (!stat.isDirectory()) return [fail(`${dir} is no directory`, "give another with --data")];
  try {
    fs.accessSync(dir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK);
  } catch (cause) {
    const isReadOnly = errnoOf(cause) === "EROFS";
    const remedy = isReadOnly ? "mount it for writing" : "change its owner";
    const what = isReadOnly ? "is on a disk that is mounted read-only" : "cannot be read and written";
    return [fail(`the data directory ${dir} ${what}`, `${remedy}, or give another with --data`)];
  }
  return [
    ok(`the data directory ${dir} has mode ${octal(stat.mode)}`),
    ...checkDisk(dir),
    ...checkSecrets(dir),
    ...checkAccessFiles(dir),
    ...damageReports(dir).map((report) => fail(report)),
    checkDatabase(dir),
  ];
}

/** Checks where a data directory that does not exist yet would be created. */
function checkParent(dir: string): Check {
  let parent = resolve(dir);
  while (!fs.existsSync(parent)) parent = dirname(parent);
  try {
    fs.accessSync(`${parent}/`, fs.constants.W_OK | fs.constants.X_OK);
    return ok(`the data directory ${dir} does not exist yet; laboro serve creates it`);
  } catch {
    return fail(
      `the data directory ${dir} cannot be created: ${parent} is not a writable directory`,
      "give another with --data",
    );
  }
}

function checkDisk(dir: string): Check[] {
  try {
    const network = networkFilesystem(dir);
    const kind =
      network === undefined
        ? ok("it is on a local filesystem")
        : warn(`it is on a network filesystem (${network})`, "a database can be damaged there: use a local disk");
    return [kind, ...checkSpace(dir)];
  } catch (cause) {
    return [warn(`its filesystem cannot be checked: ${messageOf(cause)}`, "check that the path is right")];
  }
}

function checkSpace(dir: string): Check[] {
  if (!fs.existsSync(dir)) return [];
  const { bavail, bsize, files, ffree } = fs.statfsSync(dir);
  return [...checkFree(bavail * bsize), ...checkInodes(files, ffree)];
}

/** Some filesystems have no table of inodes: they report that none exist. */
export function checkInodes(all: number, free: number): Check[] {
  if (all === 0 || free >= FEW_INODES) return [];
  const what = `${pluralize(free, "file")} more can be made there (df -i)`;
  const remedy = "remove files; without inodes the disk counts as full, whatever space is free";
  return [free === 0 ? fail(what, remedy) : warn(what, remedy)];
}

export function checkFree(free: number): Check[] {
  const what = `${formatSize(free)} are free there`;
  const remedy = "free disk space, for example with laboro clean --older-than 7d";
  if (free >= LOW_SPACE) return [ok(what)];
  return [free >= NO_SPACE ? warn(what, remedy) : fail(what, remedy)];
}

function checkSecrets(dir: string): Check[] {
  const secrets = fs.readdirSync(dir).filter((name) => SECRETS.test(name));
  const open = secrets.filter((name) => (fs.statSync(join(dir, name)).mode & 0o077) !== 0);
  if (open.length > 0) {
    const files = open.map((name) => join(dir, name)).join(" ");
    return [fail(`others can read ${open.join(", ")}`, `chmod 600 ${files}, and start the broker with a new token`)];
  }
  return secrets.length === 0 ? [] : [ok(`only you can read ${secrets.join(", ")}`)];
}

/** A broker does not start with a damaged one. */
function checkAccessFiles(dir: string): Check[] {
  return [loadOrCreateAdminToken, storedTokens, storedCertificates].flatMap((read) => {
    try {
      read(dir);
      return [];
    } catch (cause) {
      const what = messageOf(cause);
      const remedy =
        "restore it from a backup, or remove it: the broker makes a new one, and the old one is not valid then";
      return [fail(what, what.includes("remove it") ? undefined : remedy)];
    }
  });
}

/** Takes the lock, so that no broker starts meanwhile. A running broker has checked its files itself. */
function checkDatabase(dir: string): Check {
  const file = join(dir, DATABASE);
  try {
    const lock = acquireLock(join(dir, "lock"), `the data directory ${dir}`);
    try {
      const stored = inspectDatabase(file);
      const damage = findDamage(file, stored);
      if (damage !== undefined)
        return fail(`no broker runs there; ${damage.text}`, "restore a backup, or start without it");
      if (stored.commits === 0) return ok("no broker has stored anything there yet");
      const jobs = findMiscounted(file);
      if (jobs.length === 0) return ok("no broker runs there; its database is intact");
      return fail(`the counters of these jobs differ from their results: ${jobs.join(", ")}`, RESTORE);
    } finally {
      lock.release();
    }
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE") {
      const [, holder = "another process"] = /in use by (.+?)\. /.exec(cause.message) ?? [];
      return ok(`it is in use by ${holder}, which checked it when it started`);
    }
    const isDamaged = cause instanceof LaboroError && cause.code === "LABORO_DATA_CORRUPT";
    return fail(messageOf(cause), isDamaged ? RESTORE : undefined);
  }
}
