/** Jobs that an application submits in a transaction of its own. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres, { type Sql, type TransactionSql } from "postgres";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import type { RunningBroker } from "../../../src/broker/options.js";
import { addInTransaction, type Client, connect, defineTask, json } from "../../../src/entries/client.js";
import { startWorker, type Worker } from "../../../src/entries/worker.js";
import { readSubmission } from "../../../src/model/job-input.js";
import type { Write } from "../../../src/model/store.js";
import { startBroker } from "../../../src/server.js";
import { atEnd, openOnce } from "../../support/at-end.js";
import { LABORO, type Launched } from "../../support/launched.js";
import { sites } from "../../support/site.js";
import { sleep, until } from "../../support/wait.js";
import { sharedServer } from "./harness.js";

const newSite = sites();
const thumb = defineTask("thumb", { input: z.object({ file: z.string() }), output: json<string>() });
const count = defineTask<undefined, number>("count");

interface Place {
  readonly broker: RunningBroker;
  readonly url: string;
  readonly sql: Sql;
  readonly client: Client;
  readonly worker: Worker;
  readonly calls: string[];
  join(): Promise<void>;
}

async function openDatabase(): Promise<{ url: string; sql: Sql }> {
  const server = await sharedServer();
  const url = await server.database(server.template);
  const sql = postgres(url, { max: 2, onnotice: () => {} });
  atEnd(() => sql.end({ timeout: 1 }));
  return { url, sql };
}

async function openPlace(): Promise<Place> {
  const { url, sql } = await openDatabase();
  const dir = mkdtempSync(join(tmpdir(), "laboro-transactions-"));
  atEnd(async () => rmSync(dir, { recursive: true, force: true }));
  const start = async (name: string) => {
    const broker = await startBroker({ dir: join(dir, name), port: 0, store: url });
    atEnd(() => broker.stop());
    return broker;
  };
  const broker = await start("one");
  const client = await connect({ broker });
  atEnd(async () => client.close());
  const worker = startWorker({ broker, slots: 2 });
  atEnd(() => worker.stop({ graceMs: 0 }));
  const calls: string[] = [];
  worker.handle(thumb, ({ file }) => {
    calls.push(file);
    return `${file}.png`;
  });
  worker.handle(count, async (_input, { results }) => {
    let found = 0;
    for await (const _ of results(thumb)) found++;
    return found;
  });
  await worker.ready();
  return { url, sql, broker, client, worker, calls, join: async () => void (await start("two")) };
}

/** How often the broker has looked for what it was not notified of. */
function countPolls({ core }: RunningBroker): () => number {
  const { group } = core.store;
  if (group === undefined) throw new Error("the store is not shared");
  let polls = 0;
  const read = group.jobSummaries.bind(group);
  vi.spyOn(group, "jobSummaries").mockImplementation(() => {
    polls++;
    return read();
  });
  return () => polls;
}

const bad = { code: "22023" };

describe("laboro.submit", () => {
  it("makes a job when the transaction commits, and not before", async () => {
    const { sql, client } = await openPlace();
    const id = await sql.begin(async (tx) => {
      const [row] = await tx`SELECT laboro.submit('thumb', ${tx.json({ file: "a" })}) AS job`;
      const [seen] = await sql`SELECT count(*)::int AS count FROM laboro.submission`;
      expect(seen).toEqual({ count: 0 });
      return Number(row?.job);
    });
    expect(await client.job(id, thumb).result()).toBe("a.png");
    await until("its row is gone", async () => (await sql`SELECT 1 FROM laboro.submission`).length === 0);
  });

  it("makes none after a rollback or a rollback to a savepoint", async () => {
    const { sql, client, calls } = await openPlace();
    await expect(
      sql.begin(async (tx) => {
        await tx`SELECT laboro.submit('thumb', '{"file":"rolled back"}')`;
        throw new Error("no");
      }),
    ).rejects.toThrow("no");
    const id = await sql.begin(async (tx) => {
      await tx
        .savepoint(async (inner) => {
          await inner`SELECT laboro.submit('thumb', '{"file":"to the savepoint"}')`;
          throw new Error("no");
        })
        .catch(() => {});
      const [row] = await tx`SELECT laboro.submit('thumb', '{"file":"kept"}') AS job`;
      return Number(row?.job);
    });
    expect(await client.job(id, thumb).result()).toBe("kept.png");
    expect([calls, (await client.jobs()).jobs.length]).toEqual([["kept"], 1]);
  });

  it("makes none where the application is killed before its commit", async () => {
    const { url, sql, client, calls } = await openPlace();
    const program = `
      import postgres from "postgres";
      const sql = postgres(${JSON.stringify(url)}, { max: 1 });
      await sql.begin(async (tx) => {
        await tx\`SELECT laboro.submit('thumb', '{"file":"killed"}')\`;
        console.log("submitted");
        await new Promise(() => setInterval(() => {}, 1000));
      });`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(child.stdout, "data");
    child.kill("SIGKILL");
    await once(child, "exit");
    const [row] = await sql`SELECT laboro.submit('thumb', '{"file":"after"}') AS job`;
    expect(await client.job(Number(row?.job), thumb).result()).toBe("after.png");
    expect(calls).toEqual(["after"]);
  });

  it("makes the jobs of exactly the transactions that committed, where the application is killed at any moment", async () => {
    const { url, sql, client, calls } = await openPlace();
    await sql`CREATE TABLE sold (file text)`;
    const program = `
      import postgres from "postgres";
      const sql = postgres(${JSON.stringify(url)}, { max: 4 });
      const sell = async (file) => {
        await sql.begin(async (tx) => {
          await tx\`INSERT INTO sold VALUES (\${file})\`;
          await tx\`SELECT laboro.submit('thumb', \${tx.json({ file })})\`;
        });
        console.log(file);
        return sell(file + "'");
      };
      await Promise.all(["a", "b", "c", "d"].map((lane) => sell(process.argv[1] + lane)));`;
    for (const round of ["1", "2", "3"]) {
      const child = spawn(process.execPath, ["--input-type=module", "-e", program, round], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      let committed = 0;
      for await (const text of child.stdout) {
        committed += String(text).split("\n").length - 1;
        if (committed >= 20) child.kill("SIGKILL");
      }
    }
    const sold = async () => (await sql<{ file: string }[]>`SELECT file FROM sold`).map(({ file }) => file).sort();
    await until("no transaction is open", async () => {
      const open =
        await sql`SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()`;
      return open.length === 0 && calls.length >= (await sold()).length;
    });
    const jobs = (await client.jobs({ limit: 1000 })).jobs.length;
    expect([[...calls].sort(), jobs]).toEqual([await sold(), calls.length]);
    expect(jobs).toBeGreaterThanOrEqual(60);
  });

  it("is picked up at once", async () => {
    const { sql, broker, calls } = await openPlace();
    const polls = countPolls(broker);
    let withoutPoll = 0;
    for (let i = 1; i <= 20; i++) {
      const before = polls();
      await sql`SELECT laboro.submit('thumb', '{"file":"x"}')`;
      await until("it runs", () => calls.length === i);
      if (polls() === before) withoutPoll++;
    }
    // By NOTIFY. On a busy machine some are overtaken by a poll.
    expect(withoutPoll).toBeGreaterThan(0);
  });

  it("can be followed while the job is being made", async () => {
    const { sql, broker, client } = await openPlace();
    const { store } = broker.core;
    const polls = countPolls(broker);
    const commit = store.commit.bind(store);
    vi.spyOn(store, "commit").mockImplementation(async (writes: readonly Write[], now: number) => {
      const before = polls();
      // The second poll begins when what the first one found was read.
      if (writes.some(({ op }) => op === "submit")) await until("jobs were polled", () => polls() >= before + 2);
      return commit(writes, now);
    });
    const [row] = await sql`SELECT laboro.submit('thumb', '{"file":"x"}') AS job`;
    expect(await client.job(Number(row?.job), thumb).result()).toBe("x.png");
  });

  it("is waited for by clients, however long it takes until its job is made", async () => {
    const { sql, client, broker } = await openPlace();
    const polls = countPolls(broker);
    // Keeps brokers from taking it: the lock is granted at the commit, before they can read the row.
    let release = (): void => {};
    let locked: Promise<unknown> = Promise.resolve();
    const id = await sql.begin(async (tx) => {
      const [row] = await tx`SELECT laboro.submit('thumb', '{"file":"late"}') AS job`;
      locked = sql.begin(async (other) => {
        await other`LOCK TABLE laboro.submission IN EXCLUSIVE MODE`;
        await new Promise<void>((resolve) => (release = resolve));
      });
      await until("the lock is waited for", async () => {
        const waiting =
          await tx`SELECT 1 FROM pg_locks WHERE mode = 'ExclusiveLock' AND NOT granted AND relation IS NOT NULL`;
        return waiting.length > 0;
      });
      return Number(row?.job);
    });
    const result = client.job(id, thumb).result();
    const before = polls();
    await until("the broker has looked at what others have changed", () => polls() > before);
    expect(await Promise.race([result.catch(String), sleep(0)])).toBeUndefined();
    release();
    await locked;
    expect(await result).toBe("late.png");
  });

  it("is not held up by those before it that cannot be made", async () => {
    const { sql, client } = await openPlace();
    const bad = { after: [{ job: 1_000_000 }] };
    await sql`INSERT INTO laboro.submission SELECT -i, 'thumb', '{1}', ${sql.json(bad)} FROM generate_series(1, 450) AS i`;
    const [row] = await sql`SELECT laboro.submit('thumb', '{"file":"good"}') AS job`;
    expect(await client.job(Number(row?.job), thumb).result({ timeoutMs: 20_000 })).toBe("good.png");
  });

  it("makes each job once where several brokers are there", async () => {
    const { sql, client, calls, join: joinAnother } = await openPlace();
    await joinAnother();
    const rows =
      await sql`SELECT laboro.submit('thumb', jsonb_build_object('file', i::text)) AS job FROM generate_series(1, 300) AS i`;
    for (const { job } of rows) await client.job(Number(job), thumb).result();
    expect([calls.length, new Set(calls).size, (await client.jobs({ limit: 1000 })).jobs.length]).toEqual([
      300, 300, 300,
    ]);
  });

  it("makes a job once where a broker has died between the job and the removal of its row", async () => {
    const { sql, client, calls } = await openPlace();
    const [row] = await sql`SELECT laboro.submit('thumb', '{"file":"once"}') AS job`;
    const id = Number(row?.job);
    expect(await client.job(id, thumb).result()).toBe("once.png");
    await until("its row is gone", async () => (await sql`SELECT 1 FROM laboro.submission`).length === 0);
    await sql`INSERT INTO laboro.submission VALUES (${id}, 'thumb', ${sql.array(['{"file":"once"}'])}, '{}')`;
    await sql`SELECT pg_notify('laboro_submit', '')`;
    await until("its row is gone", async () => (await sql`SELECT 1 FROM laboro.submission`).length === 0);
    expect([calls, (await client.jobs()).jobs.length]).toEqual([["once"], 1]);
  });

  it("makes a job that comes after one that has failed, which ends it with the reason", async () => {
    const { sql, client, worker } = await openPlace();
    worker.handle(thumb, () => Promise.reject(new Error("no thumb")));
    const failed = await client.add(thumb, { file: "a" });
    expect(await failed.wait()).toBe("failed");
    const [row] = await sql`SELECT laboro.submit('count', NULL, ${sql.json({ after: [failed.id] })}) AS job`;
    await expect(client.job(Number(row?.job)).result()).rejects.toMatchObject({
      ...{ code: "LABORO_TASK_CANCELLED", message: expect.stringMatching(/task 1 of job 1 failed: no thumb/) },
    });
  });

  const database = openOnce(openDatabase);
  it.each([
    ["no name", "SELECT laboro.submit('', '1')"],
    ["an option that there is not", `SELECT laboro.submit('a', '1', '{"prority": 1}')`],
    ["an option of another type", `SELECT laboro.submit('a', '1', '{"priority": "high"}')`],
    ["a number that is too large", `SELECT laboro.submit('a', '1', '{"retries": 1001}')`],
    ["half a retry", `SELECT laboro.submit('a', '1', '{"retries": 0.5}')`],
    ["options that are no object", "SELECT laboro.submit('a', '1', '[]')"],
    ["no options", "SELECT laboro.submit('a', '1', NULL)"],
    ["a job that there is not", `SELECT laboro.submit('a', '1', '{"after": [77]}')`],
    ["something else than a job", `SELECT laboro.submit('a', '1', '{"after": ["x"]}')`],
    ["tags that are no texts", `SELECT laboro.submit('a', '1', '{"tags": [1]}')`],
    ["no inputs", "SELECT laboro.submit_many('a', '{}')"],
    ["an input that no worker could be sent", "SELECT laboro.submit('a', to_jsonb(repeat('x', 62914560)))"],
    ["a retry policy with a word that there is not", `SELECT laboro.submit('a', '1', '{"retry": {"wait": 1}}')`],
    ["a retry factor of none", `SELECT laboro.submit('a', '1', '{"retry": {"factor": 0}}')`],
    ["a wait that is a text", `SELECT laboro.submit('a', '1', '{"retry": {"waitMs": "1s"}}')`],
    ["a key with a space", `SELECT laboro.submit('a', '1', '{"key": "a b"}')`],
    ["another rule for a key", `SELECT laboro.submit('a', '1', '{"key": "a", "ifExists": "fail"}')`],
    ["a rule without a key", `SELECT laboro.submit('a', '1', '{"ifExists": "refuse"}')`],
    ["a time without a zone", `SELECT laboro.submit('a', '1', '{"at": "2026-12-24T18:00:00"}')`],
    ["a time and a delay", `SELECT laboro.submit('a', '1', '{"at": 0, "delayMs": 1}')`],
    ["half a slot", `SELECT laboro.submit('a', '1', '{"needs": {"slots": 0.5}}')`],
    ["all slots", `SELECT laboro.submit('a', '1', '{"needs": {"slots": "all"}}')`],
    ["an end that is none", `SELECT laboro.submit('a', '1', '{"retry": {"on": [75, 0]}}')`],
  ])("refuses %s within the transaction", async (_what, statement) => {
    await expect(database().sql.unsafe(statement)).rejects.toMatchObject(bad);
  });

  it("makes a job whose inputs are more than one message to a worker holds", async () => {
    const { sql, client, broker } = await openPlace();
    const size = defineTask<string, number>("size");
    const worker = startWorker({ broker: broker.url, token: broker.token, slots: 2 });
    atEnd(() => worker.stop({ graceMs: 0 }));
    worker.handle(size, (text) => text.length);
    await worker.ready();
    const [row] =
      await sql`SELECT laboro.submit_many('size', array_fill(to_jsonb(repeat('x', 34000000)), ARRAY[2])) AS job`;
    const job = client.job(Number(row?.job), size);
    for (const index of [0, 1]) expect(await job.result({ index })).toBe(34_000_000);
  });

  it("takes options that brokers know", async () => {
    const options = {
      ...{
        name: "n",
        pool: "p",
        retry: { waitMs: 5, factor: 1.5, maxMs: 6, jitter: 0.5, on: [75, "timeout"], never: [2] },
        tags: ["t"],
        held: true,
        priority: 1,
        retries: 2,
        crashLimit: 3,
        maxFails: 4,
      },
      ...{
        maxRunning: 5,
        timeLimitMs: 6,
        keepMs: 7,
        keepFailedMs: 8,
        needs: { slots: 2, gpu: 0.5, mem: "all" } as const,
      },
      ...({ key: "k", keyForMs: 9, ifExists: "replace", at: "2026-12-24T18:00:00.5+01:00" } as const),
    };
    const { sql, client } = await openPlace();
    const [row] = await sql`SELECT laboro.submit('thumb', NULL, ${sql.json(options)}) AS job`;
    const job = client.job(Number(row?.job));
    await until("it is there", () =>
      job.info().then(
        () => true,
        () => false,
      ),
    );
    expect(await job.info()).toMatchObject({
      name: "n",
      pool: "p",
      held: true,
      priority: 1,
      keepFailedMs: 8,
      ...{ key: "k", needs: { slots: 2, gpu: 0.5 }, notBefore: Date.parse("2026-12-24T17:00:00.500Z") },
      limits: { retry: { waitMs: 5 } },
    });
    expect(() => readSubmission({ ...options, recipe: { kind: "call", service: "thumb" } })).not.toThrow();
  });

  it("returns the job that has the key, refuses or replaces it, also one that is not made yet", async () => {
    const { sql, client, calls } = await openPlace();
    const submit = async (options: object, by: Sql | TransactionSql = sql) => {
      const [row] =
        await by`SELECT laboro.submit('thumb', '{"file":"k"}', ${sql.json({ key: "k", ...options } as never)}) AS job`;
      return Number(row?.job);
    };
    const [first, second] = await sql.begin(async (tx) => [await submit({ held: true }, tx), await submit({}, tx)]);
    expect(second).toBe(first);
    await until("it is made", async () => (await client.jobs()).jobs.length === 1);
    expect(await submit({})).toBe(first);
    await expect(submit({ ifExists: "refuse" })).rejects.toMatchObject({ code: "23505" });
    expect(await (await client.add(thumb, { file: "k" }, { key: "k" })).id).toBe(first);
    const [third, fourth] = await sql.begin(async (tx) => [
      await submit({ ifExists: "replace", held: true }, tx),
      await submit({ ifExists: "replace", keyForMs: 60_000 }, tx),
    ]);
    expect(await client.job(fourth ?? 0, thumb).result()).toBe("k.png");
    expect([await client.job(first ?? 0).wait(), await client.job(third ?? 0).wait()]).toEqual([
      "cancelled",
      "cancelled",
    ]);
    expect(await submit({})).toBe(fourth);
    expect(calls).toEqual(["k"]);
  });

  it("makes one job where many transactions submit the same key at once", async () => {
    const { url, sql, client } = await openPlace();
    const app = postgres(url, { max: 8, onnotice: () => {} });
    atEnd(() => app.end({ timeout: 1 }));
    const options = sql.json({ key: "one", held: true });
    const rows = await Promise.all(
      Array.from({ length: 40 }, () => app`SELECT laboro.submit('thumb', '{"file":"k"}', ${options}) AS job`),
    );
    expect(new Set(rows.map(([row]) => row?.job)).size).toBe(1);
    await until("its row is gone", async () => (await sql`SELECT 1 FROM laboro.submission`).length === 0);
    expect((await client.jobs()).jobs).toHaveLength(1);
  });

  it("makes each job once where its broker is killed again and again", async () => {
    const { url, sql } = await openDatabase();
    const site = newSite();
    const serve = async (): Promise<Launched> => {
      const args = ["serve", "--data", site.data, "--listen", "127.0.0.1:0", "--store", url, "--lease", "1000"];
      const broker = site.launch("broker", [LABORO, ...args]);
      await broker.says("listening on", 60_000);
      return broker;
    };
    const submit = () =>
      sql`SELECT laboro.submit('thumb', jsonb_build_object('file', i::text), '{"held": true}') FROM generate_series(1, 300) AS i`;
    const rounds = 3;
    for (let round = 1; round <= rounds; round++) {
      const broker = await serve();
      await submit();
      const made = async () => (await sql`SELECT count(*)::int AS count FROM laboro.job`)[0]?.count;
      await until("it makes jobs", async () => (await made()) > (round - 1) * 300);
      await broker.end("SIGKILL");
    }
    await serve();
    await until("all are made", async () => (await sql`SELECT 1 FROM laboro.submission LIMIT 1`).length === 0, 60_000);
    const [jobs] = await sql`SELECT count(*)::int AS count, count(DISTINCT id)::int AS different FROM laboro.job`;
    console.log(`broker killed ${rounds} times: submitted ${rounds * 300}, made ${jobs?.count}`);
    expect(jobs).toEqual({ count: rounds * 300, different: rounds * 300 });
  });

  it("needs no right but to call it", async () => {
    const { url, sql } = await openDatabase();
    const role = `app_${process.pid}_${Date.now()}`;
    await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA laboro TO ${role}`);
    atEnd(async () => void (await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`)));
    const target = new URL(url);
    target.username = role;
    target.password = "x";
    const app = postgres(target.href, { max: 1, onnotice: () => {} });
    atEnd(() => app.end({ timeout: 1 }));
    const denied = { code: "42501" };
    await expect(app`SELECT laboro.submit('thumb', '{"file":"a"}')`).rejects.toMatchObject(denied);
    await sql.unsafe(`GRANT EXECUTE ON FUNCTION laboro.submit, laboro.submit_many TO ${role}`);
    expect(await app`SELECT laboro.submit('thumb', '{"file":"a"}') > 0 AS made`).toEqual([{ made: true }]);
    await expect(app`SELECT * FROM laboro.submission`).rejects.toMatchObject(denied);
    await expect(app`SELECT * FROM laboro.job`).rejects.toMatchObject(denied);
  });
});

describe("addInTransaction", () => {
  it("adds typed jobs, also ones that come after each other, and refuses a bad input before it is sent", async () => {
    const { sql, client } = await openPlace();
    const total = await sql.begin(async (tx) => {
      const query = (text: string, parameters: string[]) => tx.unsafe(text, parameters);
      const parts = await addInTransaction(query, thumb, [{ file: "a" }, { file: "b" }]);
      return addInTransaction(query, count, [undefined], { after: [parts] });
    });
    expect(await client.job(total, count).result()).toBe(2);
    await expect(addInTransaction(() => Promise.reject(), thumb, "ab" as never)).rejects.toMatchObject({
      ...{ code: "LABORO_BAD_INPUT", message: expect.stringMatching(/expected an array/) },
    });
    // @ts-expect-error: a number is no file.
    await expect(addInTransaction(() => Promise.reject(), thumb, [{ file: 1 }])).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
  });

  it("reads the answer of pg, which is an object with rows", async () => {
    const { sql, client } = await openPlace();
    const query = async (text: string, parameters: string[]) => ({ rows: await sql.unsafe(text, parameters) });
    expect(await client.job(await addInTransaction(query, thumb, [{ file: "c" }]), thumb).result()).toBe("c.png");
  });
});
