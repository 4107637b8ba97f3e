/** Checks of a PostgreSQL database for brokers. */
import { shortDuration } from "../../../base/format.js";
import { definedOnly } from "../../../model/input.js";
import { type Client, CONNECTIONS_PER_BROKER, Connections, storeFailure } from "../../../store/postgres/connections.js";
import { MIGRATIONS, schemaVersion } from "../../../store/postgres/migrations/index.js";

/** The first version with multiranges. */
const MIN_VERSION = 14;
const CLOCK_MS = 2_000;
/** A transaction that is open for this long keeps VACUUM from removing dead rows. */
const LONG_S = 300;

const SERVER_INFO_SQL = `
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
  pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS "fullPageWrites", current_setting('autovacuum') AS autovacuum,
  current_setting('synchronous_commit') AS "synchronousCommit",
  current_setting('max_connections')::int AS connections,
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
  current_setting('superuser_reserved_connections')::int AS reserved,
  current_setting('idle_in_transaction_session_timeout') = '0' AS "noIdleTimeout",
  (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
   WHERE backend_type = 'client backend') AS "oldestS",
  has_database_privilege(current_database(), 'CREATE') AS "mayCreate",
  extract(epoch FROM clock_timestamp())::float8 * 1000 AS now`;

interface ServerInfo {
  readonly version: string;
  readonly major: number;
  readonly standby: boolean;
  readonly fsync: string;
  readonly fullPageWrites: string;
  readonly autovacuum: string;
  readonly synchronousCommit: string;
  readonly connections: number;
  readonly used: number;
  readonly reserved: number;
  readonly noIdleTimeout: boolean;
  readonly oldestS: number;
  readonly mayCreate: boolean;
  readonly now: number;
}

export async function checkPostgres(url: string): Promise<Check[]> {
  let connections: Connections | undefined;
  let client: Client | undefined;
  try {
    connections = new Connections({ url, readers: 1 });
    client = connections.client(1, {});
    const checks = await checkServer(client, connections.displayUrl);
    // With the settings of a broker, which a pooler may refuse.
    await connections.heartbeat("SELECT 1", []);
    return checks;
  } catch (cause) {
    const failure = connections === undefined ? cause : storeFailure(cause, connections.displayUrl, true);
    return [fail(messageOf(failure), remedyFor(messageOf(failure)))];
  } finally {
    await client?.end({ timeout: 1 });
    await connections?.close();
  }
}

function remedyFor(reason: string): string {
  if (/certificate/.test(reason)) return "name the CA that has signed it: ?sslmode=verify-full&sslrootcert=FILE";
  if (reason.includes("no encryption")) return "if the server wants TLS, add ?sslmode=verify-full&sslrootcert=FILE";
  if (reason.includes("startup parameter"))
    return "a pooler refuses the settings of a broker: connect to the server itself, or see PostgreSQL in docs/reference/store.md";
  return "is the server running, and are address, user and password right?";
}

async function checkServer(client: Client, place: string): Promise<Check[]> {
  await client.unsafe("SELECT 1");
  const asked = Date.now();
  const [facts] = await client.unsafe<ServerInfo[]>(SERVER_INFO_SQL);
  const took = Date.now() - asked;
  if (facts === undefined) return [fail(`${place} answers with nothing`)];
  const answers = `PostgreSQL ${facts.version} at ${place} answers in ${shortDuration(took)}`;
  if (facts.major < MIN_VERSION) return [fail(answers, `use PostgreSQL ${MIN_VERSION} or newer`)];
  return [
    ok(answers),
    ...(facts.standby ? [fail("it is a standby, which takes no writes", "name the primary")] : []),
    ...checkDurability(facts),
    checkConnections(facts),
    ...checkMaintenance(facts),
    checkClock(facts.now - (asked + took / 2)),
    await checkSchema(client, place, facts),
  ];
}

function checkDurability({ fsync, synchronousCommit, fullPageWrites }: ServerInfo): Check[] {
  const loses = "acknowledged data is lost when the machine fails: ALTER SYSTEM SET";
  const bad: Check[] = [];
  if (fsync !== "on") bad.push(fail("its fsync is off", `${loses} fsync = on`));
  if (synchronousCommit === "off") bad.push(fail("its synchronous_commit is off", `${loses} synchronous_commit = on`));
  if (fullPageWrites !== "on") {
    bad.push(warn("its full_page_writes is off", "right only where the disk writes whole pages or none"));
  }
  return bad.length > 0 ? bad : [ok(`it has on disk what it acknowledges (synchronous_commit = ${synchronousCommit})`)];
}

function checkConnections({ connections, reserved, used }: ServerInfo): Check {
  const free = Math.max(0, connections - reserved - used);
  const what = `${free} of its ${connections} connections are free`;
  if (free >= CONNECTIONS_PER_BROKER) return ok(`${what}; a broker takes up to ${CONNECTIONS_PER_BROKER}`);
  return warn(what, `a broker takes up to ${CONNECTIONS_PER_BROKER}: raise max_connections`);
}

function checkMaintenance({ autovacuum, noIdleTimeout, oldestS }: ServerInfo): Check[] {
  const checks: Check[] = [];
  if (autovacuum !== "on")
    checks.push(fail("its autovacuum is off", "tables only grow: ALTER SYSTEM SET autovacuum = on"));
  if (oldestS > LONG_S) {
    const what = `a transaction has been open for ${shortDuration(oldestS * 1_000)}`;
    checks.push(warn(what, "VACUUM cannot remove dead rows meanwhile: see xact_start in pg_stat_activity"));
  }
  if (noIdleTimeout) {
    const remedy = "set idle_in_transaction_session_timeout, for example to 5min; a broker's own have theirs";
    checks.push(warn("it does not end transactions that others leave open", remedy));
  }
  return checks.length > 0 ? checks : [ok("its autovacuum removes dead rows")];
}

function checkClock(difference: number): Check {
  const offset = Math.abs(difference);
  if (offset < CLOCK_MS) return ok("its clock agrees with this one");
  const what = `its clock is ${shortDuration(offset)} ${difference < 0 ? "behind" : "ahead of"} this one`;
  return warn(what, "set both by NTP: leases use the server's clock, times in lists the brokers'");
}

async function checkSchema(client: Client, place: string, { mayCreate }: ServerInfo): Promise<Check> {
  const known = MIGRATIONS.length;
  try {
    const version = await schemaVersion(client, place);
    if (version === known) return ok(`its schema has version ${version}, as this laboro expects`);
    const what =
      version === 0
        ? "no broker has stored anything there yet"
        : `its schema has version ${version}, this laboro expects ${known}`;
    if (mayCreate) return ok(`${what}; laboro serve --store brings it to version ${known}`);
    return fail(what, `this user may not change it: GRANT CREATE ON DATABASE, or start a broker as its owner once`);
  } catch (cause) {
    return fail(messageOf(storeFailure(cause, place, true)));
  }
}

/** One check and its result. */
export interface Check {
  readonly state: "ok" | "warn" | "FAIL";
  readonly message: string;
  /** What the user can do. */
  readonly remedy?: string;
}

export const ok = (message: string): Check => ({ state: "ok", message });
/** Some messages already say what to do. */
export const warn = (message: string, remedy?: string): Check => ({
  state: "warn",
  message,
  ...definedOnly({ remedy }),
});
export const fail = (message: string, remedy?: string): Check => ({
  state: "FAIL",
  message,
  ...definedOnly({ remedy }),
});

export const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
