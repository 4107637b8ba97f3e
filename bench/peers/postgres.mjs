/** A throw-away PostgreSQL with its default settings, fsync on. It refuses to run as root, so root starts it as `postgres`. */
import { execFileSync } from "node:child_process";
import { chownSync, existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import postgres from "postgres";
import { removeFolder, start, temporaryFolder, which } from "../lib/children.mjs";
import { freePort } from "./ports.mjs";

const DEBIAN = "/usr/lib/postgresql";
const isRoot = process.getuid?.() === 0;

export function postgresBinaries() {
  if (isRoot && which("setpriv") === undefined) return undefined;
  const found = which("initdb");
  if (found !== undefined) return join(found, "..");
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).toSorted((a, b) => Number(b) - Number(a)) : [];
  return versions.map((version) => join(DEBIAN, version, "bin")).find((dir) => existsSync(join(dir, "initdb")));
}

export async function startPostgres() {
  const binaries = postgresBinaries();
  const dir = temporaryFolder("postgres");
  const port = await freePort();
  const as = isRoot ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] : [];
  if (isRoot) chownSync(dir, idOf("-u"), idOf("-g"));
  const [initdb, ...initArgs] = [
    ...as,
    join(binaries, "initdb"),
    "-D",
    join(dir, "data"),
    "-U",
    "bench",
    "-A",
    "trust",
  ];
  execFileSync(initdb, initArgs, { stdio: "pipe" });
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", `unix_socket_directories=${dir}`];
  const [program, ...args] = [
    ...as,
    join(binaries, "postgres"),
    "-D",
    join(dir, "data"),
    "-p",
    String(port),
    ...settings,
  ];
  const server = start(program, args);
  await server.says(/ready to accept connections/);
  const urlOf = (database) => `postgres://bench@127.0.0.1:${port}/${database}`;
  return {
    server,
    url: urlOf("postgres"),
    /** A new one; gives its URL. */
    database: async (name) => {
      const sql = postgres(urlOf("postgres"), { max: 1 });
      await sql.unsafe(`CREATE DATABASE ${name}`);
      await sql.end();
      return urlOf(name);
    },
    stop: async () => {
      await server.stop("SIGINT");
      removeFolder(dir);
    },
  };
}

const idOf = (flag) => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
