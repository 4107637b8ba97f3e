/**
 * A day in the life of a group of three brokers on one PostgreSQL, with everything at once: commands, scripts, calls, typed tasks in
 * threads, delays, limits, a schedule, requests; workers and clients of all protocols, one over ssh. All day long brokers, workers and the
 * database are killed and come back. docs/guide/tour.md has a short walk through such a day.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import postgres from "postgres";
import { expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { FULL, report } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { startPostgres } from "../support/postgres.js";
import { memoryOf } from "../support/process-table.js";
import { SeededRandom } from "../support/random.js";
import { TRUE } from "../support/recipes.js";
import { runsOf } from "../support/schedule-runs.js";
import { again, Site } from "../support/site.js";
import { NO_SSHD } from "../support/sshd.js";
import { sleep, until } from "../support/wait.js";
import { openCallers } from "./long-day/callers.js";
import { BROKERS, type BrokerName, Processes } from "./long-day/processes.js";
import { type Counts, type Losses, NO_LOSSES, Round, square } from "./long-day/work.js";

/** Rounds follow each other for this long; there is at least one. */
const ROUNDS_MS = FULL ? 600_000 : 0;
/** Rounds after which nothing may grow any more. */
const WARM_UP = 3;
/** MiB and descriptors that a process may have more at the end than after the warm-up. */
const GROWTH = { memory: 40, descriptors: 10 };
/** Made by mktemp in a script of runexp: one that is killed together with its runner cannot remove it. */
const FOLDER_OF_SCRIPT = /^temporary tmp\.\w{10}$/;
const EVERY_MS = 1_000;
const DAY_MS = FULL ? 3_600_000 : 300_000;

const scale = (counts: Counts, by: number): Counts =>
  Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, Math.ceil(count * by)])) as unknown as Counts;
const COUNTS = scale(
  {
    ...{ batch: 120, numbered: 40, fuqClient: 8, scripts: 20, experiments: 4 },
    ...{ calls: 60, typed: 60, limited: 12, delayed: 4 },
  },
  FULL ? 3 : 1,
);

interface Day {
  readonly group: GroupSite;
  readonly processes: Processes;
  readonly client: Client;
  readonly random: SeededRandom;
  readonly database: Awaited<ReturnType<typeof startPostgres>>;
}

/** What happens in the middle of it all. Each ends when what it struck is there again. */
const FAULTS: Readonly<Record<string, (day: Day) => Promise<void>>> = {
  "kill -9 of a broker": async (day) => restart(day, "SIGKILL", oneOf(day, BROKERS)),
  "database crash": async ({ database }) => {
    await database.halt("crash");
    await database.resume();
  },
  "kill -9 of workers": ({ processes }) =>
    processes.killAndStart("first", "fuq-raw", ...(FULL ? ["runner", "scale0"] : [])),
  "end of a broker in order": async (day) => restart(day, "SIGTERM", oneOf(day, BROKERS)),
  "connection of ssh cut": async ({ processes }) => processes.cutSsh(),
  "kill -9 of all brokers": (day) => restart(day, "SIGKILL", ...BROKERS),
  "database restart": async ({ database }) => {
    await database.halt("orderly");
    await database.resume();
  },
  "kill -9 of two brokers and a worker": async (day) => {
    await Promise.all([restart(day, "SIGKILL", "a", "b"), day.processes.killAndStart("second", "fuq-v1")]);
  },
  "database connections terminated": async ({ database, random }) => {
    for (let round = 0; round < 10; round++) {
      await database.admin(
        (sql) => sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laboro'`,
      );
      await sleep(random.next() * 100);
    }
  },
};
const SHORT = ["kill -9 of a broker", "database crash", "kill -9 of workers", "connection of ssh cut"];

const oneOf = <T>({ random }: Day, all: readonly T[]): T => all[random.between(0, all.length - 1)] as T;

async function restart({ group, processes }: Day, signal: "SIGKILL" | "SIGTERM", ...names: readonly BrokerName[]) {
  await Promise.all(names.map((name) => group.brokerNamed(name).end(signal)));
  await Promise.all(names.map((name) => processes.broker(name)));
}

function shuffled<T>(random: SeededRandom, given: readonly T[]): T[] {
  return given
    .map((value) => ({ value, at: random.next() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

it(
  "everything at once for a day: every task is accounted for, nothing grows, nothing is left behind",
  async () => {
    const random = new SeededRandom();
    console.log(`seed ${random.seed}${NO_SSHD === undefined ? "" : `; no worker over ssh: ${NO_SSHD}`}`);
    const database = await startPostgres();
    const group = await GroupSite.open(new Site(), database, { leaseMs: 3_000, graceMs: 5_000 });
    let left: string[] = [];
    try {
      const processes = await Processes.open(group);
      const client = await group.client(...BROKERS);
      const day = { group, processes, client, random, database };
      await client.ask("limitSet", { name: "api", running: 3 });
      await client.schedules.set("tick", { everyMs: EVERY_MS, job: { recipe: TRUE, tags: ["ours"] } });
      if (FULL) await fillThreads(client);
      const callers = await openCallers(group, processes);
      const losses = { ...NO_LOSSES } as { -readonly [Name in keyof Losses]: Losses[Name] };
      const sizes: ReturnType<typeof sizesOf>[] = [];
      try {
        const begun = performance.now();
        for (let number = 1; number === 1 || performance.now() - begun < ROUNDS_MS; number++) {
          const names = shuffled(random, FULL ? Object.keys(FAULTS) : SHORT);
          const lost = await oneRound(day, number, names);
          for (const [name, count] of Object.entries(lost)) losses[name as keyof Losses] += count;
          sizes.push(sizesOf(processes));
          if (FULL) console.log(`round ${number} (${names.join(", ")}): ${JSON.stringify([lost, sizes.at(-1)])}`);
        }
      } finally {
        await callers.stop();
      }
      await client.schedules.pause("tick");
      const schedule = await runsOf(client, "tick", EVERY_MS);
      const calls = callers.calls();
      console.log(`requests: ${JSON.stringify(calls)}; runs of the schedule: ${JSON.stringify(schedule)}`);
      report({ fault: "group: a long day, everything at once", ...losses });
      expect(losses).toMatchObject({ submissionsLost: 0, resultsLost: 0, outputsLost: 0, recordedTwice: 0 });
      expect(schedule).toMatchObject({ twice: 0, unexplained: [], early: [] });
      for (const [kind, { answered }] of Object.entries(calls)) expect([kind, answered > 0]).toEqual([kind, true]);
      if (FULL) expectFlat(sizes);
      await expectNothingLeft(day);
    } catch (cause) {
      console.log(group.said());
      throw cause;
    } finally {
      left = await group.site.close();
      await database.remove();
    }
    expect(left.filter((name) => !FOLDER_OF_SCRIPT.test(name))).toEqual([]);
  },
  DAY_MS,
);

/** V8 lets the heap of a thread grow to some size before it frees much. This is done before memory is compared. */
async function fillThreads(client: Client): Promise<void> {
  const inputs = Array.from({ length: 100_000 }, (_, n) => ({ n: n % 1_000 }));
  for (let from = 0; from < inputs.length; from += 10_000) {
    const job = await client.addMany(square, inputs.slice(from, from + 10_000));
    await job.wait();
  }
}

async function oneRound(day: Day, number: number, faults: readonly string[]): Promise<Losses> {
  const round = await Round.begin(day.group, day.processes, day.client, COUNTS, number);
  for (const [i, name] of faults.entries()) {
    const share = (COUNTS.batch * (i + 1)) / (faults.length + 2);
    await until(`${share} tasks have been started`, () => round.log.count >= share, DEADLINE_MS);
    await round.note();
    await FAULTS[name]?.(day);
    if (i === 1) await round.release();
  }
  return round.end();
}

/** Of the processes that live all day. */
function sizesOf(processes: Processes): Readonly<Record<string, { memory: number; descriptors: number }>> {
  return Object.fromEntries(
    processes.processes.map(({ name, pid }) => [
      `${name} (${pid})`,
      { memory: Math.round(memoryOf(pid).now), descriptors: fs.readdirSync(`/proc/${pid}/fd`).length },
    ]),
  );
}

function expectFlat(sizes: readonly ReturnType<typeof sizesOf>[]): void {
  const [before, after] = [sizes[WARM_UP - 1] ?? {}, sizes.at(-1) ?? {}];
  for (const [name, { memory, descriptors }] of Object.entries(after)) {
    const early = before[name];
    if (early === undefined) continue;
    expect([name, memory - early.memory < GROWTH.memory]).toEqual([name, true]);
    expect([name, descriptors - early.descriptors < GROWTH.descriptors]).toEqual([name, true]);
  }
}

/** In the database, and in the folders of the workers. */
async function expectNothingLeft({ group, processes, client }: Day): Promise<void> {
  expect((await client.ask("limits", {})).limits).toMatchObject([{ name: "api", used: { running: 0 }, waiting: 0 }]);
  await until("no job is open", async () => (await client.jobs({ state: ["open"] })).jobs.length === 0);
  await again(() => client.ask("clean", {}));
  const sql = postgres(group.store, { max: 1, onnotice: () => {} });
  try {
    for (const table of ["job", "job_state", "task_range", "result", "earlier_attempt", "output", "submission"]) {
      const [row] = await sql.unsafe(`SELECT count(*)::int AS count FROM laboro.${table}`);
      expect([table, row?.count]).toEqual([table, 0]);
    }
  } finally {
    await sql.end();
  }
  await processes.leave();
  // 130: the runner's own word for an end by a signal.
  for (const one of processes.processes)
    expect([one.name, one.exitCode]).toEqual([one.name, one.name === "worker runner" ? 130 : 0]);
  for (const name of BROKERS) {
    await group.brokerNamed(name).end("SIGTERM");
    expect([name, group.brokerNamed(name).exitCode]).toEqual([name, 0]);
  }
  // Of a worker: its identity, where its brokers are, and a spool without results.
  for (const name of ["first", "second", "steady"]) {
    const dir = group.site.path(name);
    const files = (fs.readdirSync(dir, { recursive: true }) as string[]).filter((file) =>
      fs.statSync(join(dir, file)).isFile(),
    );
    expect([name, files.sort()]).toEqual([name, ["brokers.json", "results", "store.json", "worker-secret"]]);
    expect([name, fs.statSync(join(dir, "results")).size]).toEqual([name, 0]);
  }
}
