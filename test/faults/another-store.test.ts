/** The store is lost, restored from a copy or made again, and a worker comes back with work of the former one. */
import * as fs from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { GroupSite } from "../support/group-site.js";
import type { Launched } from "../support/launched.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const TEST_MS = 60_000;
let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres();
}, TEST_MS);
afterAll(() => server.remove());

/** A script with its own standard input. Task 2 writes before it waits for the gate; task 3 writes on until it is killed. */
function oldJob(site: Site, onTerm: "ignore" | "end") {
  const script = `
cat; echo old script $LABORO_TASK
if [ $LABORO_TASK = 2 ]; then touch ${site.path("at-gate")}; while [ ! -e ${site.path("gate")} ]; do sleep 0.02; done; fi
if [ $LABORO_TASK = 3 ]; then
  ${onTerm === "ignore" ? "trap '' TERM; " : ""}echo $$ > ${site.path("pid")}
  n=0; while :; do n=$((n + 1)); echo old $n; echo $n > ${site.path("beat.new")}; mv ${site.path("beat.new")} ${site.path("beat")}; sleep 0.02; done
fi`;
  return { recipe: { kind: "script", type: ".sh", content: script, stdin: "old input\n" }, count: 3 } as const;
}

/** Task 3 ends when the old task 3 has written once more beside it, or is gone. */
function newJob(site: Site) {
  const script = `
cat; echo new script $LABORO_TASK
if [ $LABORO_TASK = 3 ]; then
  n=$(cat ${site.path("beat")})
  while kill -0 $(cat ${site.path("pid")}) 2>/dev/null && [ "$(cat ${site.path("beat")})" = "$n" ]; do sleep 0.02; done
fi`;
  return { recipe: { kind: "script", type: ".sh", content: script, stdin: "new input\n" }, count: 3 } as const;
}

/** The worker has the script, an ended task, one whose result is spooled, and one that runs; its broker is gone. */
async function leaveWorkBehind(
  site: Site,
  client: Client,
  broker: Launched,
  onTerm: "ignore" | "end" = "end",
): Promise<number> {
  const old = await client.submit(oldJob(site, onTerm));
  await until("one task has ended, and two run", async () => {
    const { counters } = await old.info();
    return counters.succeeded === 1 && fs.existsSync(site.path("at-gate")) && fs.existsSync(site.path("beat"));
  });
  await broker.end("SIGKILL");
  fs.writeFileSync(site.path("gate"), "");
  await until("the result is spooled", () => fs.statSync(site.path("one/results")).size > 0);
  return old.id;
}

async function apiOf<T>(site: Site, path: string): Promise<T> {
  const headers = { authorization: `Bearer ${site.token}` };
  return (await (await fetch(`${site.url}/api/v1/${path}`, { headers })).json()) as T;
}

async function expectOwnWork(site: Site, client: Client, worker: Launched): Promise<void> {
  const job = await client.submit(newJob(site));
  expect(await job.wait()).toBe("succeeded");
  for (const index of [0, 1, 2]) {
    const output = await job.text(index);
    expect(output).toBe(`new input\nnew script ${index + 1}\n`);
  }
  for await (const { attempt, outputBytes } of job.results()) {
    expect({ attempt, outputBytes }).toEqual({ attempt: 1, outputBytes: 23 });
  }
  expect(worker.over).toBe(false);
}

it(
  "a lost store: the new one's jobs run their own scripts, and no result or output of the old one counts",
  async () => {
    const site = newSite();
    await site.startBroker();
    const worker = await site.startWorker("one", { slots: 3 });
    const id = await leaveWorkBehind(site, await site.client(), site.broker, "ignore");
    const access = fs.readFileSync(join(site.data, "access.json"));
    fs.rmSync(site.data, { recursive: true });
    fs.mkdirSync(site.data, { mode: 0o700 });
    fs.writeFileSync(join(site.data, "access.json"), access, { mode: 0o600 });
    await site.startBroker();
    const client = await site.client();
    await expectOwnWork(site, client, worker);
    expect((await client.jobs()).jobs.map((job) => job.id)).toEqual([id]);
    expect(worker.said).toContain("another store");
    expect(site.broker.said).toContain("another store");
  },
  TEST_MS,
);

it(
  "a data directory restored from an older copy: the same after a restart of the worker, and both say that it is older",
  async () => {
    const site = newSite();
    await site.startBroker();
    const first = await site.startWorker("one", { slots: 3 });
    await site.broker.end("SIGTERM");
    fs.cpSync(site.data, site.path("copy"), { recursive: true });
    await site.startBroker();
    await leaveWorkBehind(site, await site.client(), site.broker);
    await first.end("SIGKILL");
    fs.rmSync(site.data, { recursive: true });
    fs.renameSync(site.path("copy"), site.data);
    await site.startBroker();
    const client = await site.client();
    const worker = await site.startWorker("one", { slots: 3 });
    await expectOwnWork(site, client, worker);
    for (const { said } of [site.broker, worker]) expect(said).toContain("is older than what");
    const { problems } = await apiOf<{ problems: readonly { kind: string }[] }>(site, "overview");
    expect(problems.map(({ kind }) => kind)).toContain("store-older");
  },
  TEST_MS,
);

it(
  "a database that is made again: the same for a group",
  async () => {
    const site = newSite();
    const group = await GroupSite.open(site, server);
    await group.broker("a");
    const worker = await group.worker("one", "a", 3);
    await leaveWorkBehind(site, await group.client("a"), group.brokerNamed("a"));
    const name = new URL(group.store).pathname.slice(1);
    await server.admin(async (sql) => {
      await sql.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
      await sql.unsafe(`CREATE DATABASE ${name}`);
    });
    await group.broker("a");
    await expectOwnWork(site, await group.client("a"), worker);
    expect(worker.said).toContain("another store");
  },
  TEST_MS,
);

it(
  "a database that is lost beside its output: the output is not that of new jobs, also after a restart",
  async () => {
    const site = newSite();
    await site.startBroker();
    await site.startWorker("one");
    // More output than goes with a result.
    const old = await (await site.client()).submit({ recipe: { kind: "command", argv: ["seq", "2000"] } });
    await old.wait();
    await site.broker.end("SIGTERM");
    for (const name of fs.readdirSync(site.data)) if (name.startsWith("store.db")) fs.rmSync(join(site.data, name));
    await site.startBroker();
    const wait = `echo new; touch ${site.path("at-gate")}; while [ ! -e ${site.path("gate")} ]; do sleep 0.02; done`;
    const client = await site.client();
    const job = await client.submit({ recipe: { kind: "command", shell: true, argv: [wait] } });
    expect(job.id).toBeGreaterThan(old.id);
    await until("it runs, and its output is stored", async () => (await job.text(0)).length > 0);
    await site.broker.end("SIGKILL");
    await site.startBroker();
    fs.writeFileSync(site.path("gate"), "");
    expect(await (await site.client()).job(job.id).wait()).toBe("succeeded");
    expect(await (await site.client()).job(job.id).text(0)).toBe("new\n");
    const [aside = ""] = fs.readdirSync(site.data).filter((name) => name.startsWith("unknown-output-"));
    expect(fs.readdirSync(join(site.data, aside))).toEqual([String(old.id)]);
  },
  TEST_MS,
);
