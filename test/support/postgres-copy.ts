/**
 * A copy of a running server's cluster, by PostgreSQL's own low-level backup: to restore from, or as a standby that follows the original. Needs no
 * other program than the server, of which the package has no more.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import postgres from "postgres";
import { freePort } from "./free-port.js";
import type { PostgresServer } from "./postgres.js";
import { until } from "./wait.js";

export interface Copy {
  readonly port: number;
  urlOf(database: string): string;
  /** A standby becomes the server that is written to. */
  promote(): Promise<void>;
  remove(): Promise<void>;
}

export async function copyOf(server: PostgresServer, how: "standby" | "restored"): Promise<Copy> {
  const dir = fs.mkdtempSync(join(tmpdir(), "laboro-postgres-"));
  const data = join(dir, "data");
  const { user, binaries } = await backUp(server, data);
  if (how === "standby") {
    fs.writeFileSync(join(data, "standby.signal"), "");
    const source = `host=127.0.0.1 port=${server.port} user=${user} application_name=standby`;
    fs.appendFileSync(join(data, "postgresql.auto.conf"), `primary_conninfo = '${source}'\n`);
  }
  giveAway(dir);
  const port = await freePort();
  const child = serve(binaries, data, port);
  const urlOf = (database: string): string => `postgres://${user}@127.0.0.1:${port}/${database}`;
  const sql = postgres(urlOf("postgres"), { max: 1, onnotice: () => {} });
  await until(
    "the copy answers",
    () =>
      sql`SELECT 1`.then(
        () => true,
        () => false,
      ),
    60_000,
  );
  return {
    port,
    urlOf,
    promote: async () => {
      await sql`SELECT pg_promote()`;
    },
    remove: async () => {
      await sql.end({ timeout: 1 });
      const ended = once(child, "exit");
      child.kill("SIGQUIT");
      await ended;
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

async function backUp(server: PostgresServer, to: string): Promise<{ user: string; binaries: string }> {
  return server.admin(async (sql) => {
    const [found] = await sql<{ data: string; user: string; binary: string }[]>`
      SELECT current_setting('data_directory') AS data, current_user AS user, pg_read_file('postmaster.opts') AS binary`;
    if (found === undefined) throw new Error("the server does not say where its data is");
    await sql`SELECT pg_backup_start('laboro', true)`;
    fs.cpSync(found.data, to, { recursive: true, filter: (path) => !/postmaster\.(pid|opts)$/.test(path) });
    const [stop] = await sql<{ labelfile: string }[]>`SELECT labelfile FROM pg_backup_stop(false)`;
    // What was written during the copy is in the log up to here.
    fs.cpSync(join(found.data, "pg_wal"), join(to, "pg_wal"), { recursive: true, force: true });
    fs.writeFileSync(join(to, "backup_label"), stop?.labelfile ?? "");
    return { user: found.user, binaries: dirname(found.binary.split(" ", 1)[0] ?? "") };
  });
}

const isRoot = process.getuid?.() === 0;

function giveAway(dir: string): void {
  if (isRoot) execFileSync("chown", ["-R", "nobody:nogroup", dir]);
  fs.chmodSync(join(dir, "data"), 0o700);
}

function serve(binaries: string, data: string, port: number): ChildProcess {
  const nobody = isRoot ? ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] : [];
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    dynamic_shared_memory_type: "mmap",
    fsync: "off",
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const command = [join(binaries, "postgres"), "-D", data, "-p", String(port), ...options];
  return spawn("setpriv", [...nobody, "--pdeathsig=QUIT", ...command], { stdio: "ignore" });
}
