/**
 * A day in the life of one broker: 5,000 tasks of four kinds, five kinds of workers that come and go, two restarts of the broker, a hold, a
 * cancel, a worker that misbehaves for a while, and requests all the time. docs/guide/tour.md tells it.
 */
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { type Client, type JobHandle, LaboroError } from "../../../src/entries/client.js";
import { startWorker, type Worker } from "../../../src/entries/worker.js";
import { resolveForemanUrl } from "../../../src/protocols/fuq/worker/foreman-url.js";
import { startFuqWorker } from "../../../src/protocols/fuq/worker/index.js";
import { RoundRobinWorker } from "../../../src/protocols/round-robin/worker/worker.js";
import { startRunner } from "../../../src/protocols/runexp/runner/index.js";
import { startScale0Worker } from "../../../src/protocols/scale0/worker/worker.js";
import { resultsOf } from "../../support/batch.js";
import { freePort } from "../../support/free-port.js";
import { CALL_NOTHING, NOTHING } from "../../support/recipes.js";
import { scaled } from "../../support/scale.js";
import { again, type Site, sites } from "../../support/site.js";
import { until } from "../../support/wait.js";

const newSite = sites();
const SILENT = { info: () => {}, warn: () => {}, error: () => {} };
const COUNTS = { nothing: scaled(3_500), commands: scaled(400), scripts: scaled(100), calls: scaled(1_000) };
const EXTRA = 200;

interface Ports {
  readonly fuq: number;
  readonly runexp: number;
  readonly roundRobin: number;
  readonly scale0: readonly number[];
}

/** Workers of every kind, at listeners that stay where they are over a restart. */
async function staffOf(site: Site, ports: Ports, atEnd: (stop: () => Promise<unknown>) => void) {
  const ours = (name: string, slots: number): Worker => {
    const services = { ...NOTHING, shout: (body: Uint8Array) => Buffer.from(body).toString().toUpperCase() };
    const worker = startWorker({ broker: site.url, token: site.token, name, slots, dir: site.path(name), services });
    atEnd(() => worker.stop({ graceMs: 0 }));
    return worker;
  };
  const tokens = JSON.parse(readFileSync(`${site.data}/tokens.json`, "utf8")) as { role: string; token: string }[];
  const password = tokens.find(({ role }) => role === "fuq")?.token ?? "";
  const foreman = resolveForemanUrl({ fuq: site.url, env: { LABORO_FUQ_TOKEN: password } });
  const common = { slots: 1, log: SILENT, firstDelayMs: 100 };
  const web = startFuqWorker({ ...common, endpoint: { by: "websocket", foreman }, node: "web", dir: site.path("web") });
  atEnd(() => web.stop());
  const address = { host: "127.0.0.1", port: ports.fuq };
  const raw = startFuqWorker({ ...common, endpoint: { by: "raw", address }, node: "raw", dir: site.path("raw") });
  atEnd(() => raw.stop());
  const manager = { host: "127.0.0.1", port: ports.runexp };
  const runner = startRunner({
    manager,
    host: "runner",
    threads: 2,
    dir: site.path("runner"),
    retryFirstConnect: true,
    holdMs: 200,
  });
  atEnd(async () => {
    runner.stop(true);
    await runner.ended;
  });
  const mood = { shaky: false };
  for (const moody of [false, true]) {
    const worker = await RoundRobinWorker.open({
      url: `tcp://127.0.0.1:${ports.roundRobin}`,
      slots: 4,
      reconnectMs: 100,
      commands: {
        reverse: async ([text = Buffer.alloc(0)]) => {
          await new Promise((resolve) => setTimeout(resolve, 20));
          if (moody && mood.shaky) throw new Error("not today");
          return [Buffer.from(text).reverse()];
        },
      },
    });
    await worker.register();
    atEnd(() => worker.close());
  }
  const scale0 = await startScale0Worker({
    broker: `tcp://127.0.0.1:${ports.scale0[1]}`,
    identity: "scale0",
    keepTrying: true,
    services: { echo: (body) => body },
  });
  scale0.ended.catch(() => {});
  atEnd(() => scale0.stop(0));
  return { ours, mood };
}

/** Asks one service after the other until it is told to stop. Each question is answered rightly, or refused with a code. */
function askers(client: Client): { readonly stop: () => Promise<{ answered: number; refused: number }> } {
  let [going, answered, refused] = [true, 0, 0];
  const ask = async (service: string, question: string, answer: string): Promise<void> => {
    while (going) {
      try {
        expect(Buffer.from(await client.request(service, question, { timeoutMs: 5_000 })).toString()).toBe(answer);
        answered++;
      } catch (cause) {
        if (!(cause instanceof LaboroError)) throw cause;
        refused++;
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const all = Promise.all([ask("shout", "hello", "HELLO"), ask("echo", "again", "again")]);
  return {
    stop: async () => {
      going = false;
      await all;
      return { answered, refused };
    },
  };
}

it("thousands of tasks, five kinds of workers, two restarts: every task is accounted for, each result once", async () => {
  const site = newSite();
  const stops: (() => Promise<unknown>)[] = [];
  const [fuq = 0, runexp = 0, roundRobin = 0, ...scale0] = await Promise.all(Array.from({ length: 6 }, freePort));
  const listeners = [`fuq=${fuq}`, `runexp=${runexp}`, `round-robin=${roundRobin}`, `scale0=${scale0.join(",")}`];
  const broker = { listeners, options: ["--standing", "--rr-service", "reverse=rr.reverse"] };
  await site.startBroker(broker);
  const client = await site.client();
  const { ours, mood } = await staffOf(site, { fuq, runexp, roundRobin, scale0 }, (stop) => stops.push(stop));
  ours("steady", 2);
  const command = site.path("numbered.sh");
  const notes = site.path("notes");
  writeFileSync(command, `#!/bin/sh\necho "$1" >> '${notes}'\n`);
  chmodSync(command, 0o755);

  const jobs: Record<keyof typeof COUNTS, JobHandle> = {
    nothing: await client.submit({ name: "nothing", recipe: CALL_NOTHING, count: COUNTS.nothing, maxRunning: 200 }),
    commands: await client.submit({
      name: "commands",
      recipe: { kind: "command", argv: [command, "{#}"], placeholders: true, dir: site.dir },
      count: COUNTS.commands,
    }),
    scripts: await client.submit({
      name: "scripts",
      recipe: { kind: "script", content: Buffer.from("echo done\n"), type: ".sh" },
      count: COUNTS.scripts,
    }),
    calls: await client.submit({
      name: "calls",
      recipe: { kind: "call", service: "rr.reverse", body: Buffer.from("drawer") },
      count: COUNTS.calls,
      retries: 20,
      priority: 1,
    }),
  };
  const extra = await client.submit({ name: "extra", recipe: CALL_NOTHING, count: EXTRA, held: true });
  const requests = askers(client);
  const finished = async (job: JobHandle): Promise<number> => {
    const { succeeded, failed, cancelled } = (await again(() => job.info())).counters;
    return succeeded + failed + cancelled;
  };
  const reaches = (job: JobHandle, part: number, count: number): Promise<unknown> =>
    until(`job ${job.id} is at ${part}`, async () => (await finished(job)) >= part * count, 120_000);
  const seen = new Set<string>();
  const watch = setInterval(() => {
    void client
      .workers()
      .then((all) => {
        for (const { protocol, standing } of all) seen.add(`${protocol} ${standing}`);
      })
      .catch(() => {});
  }, 50);

  try {
    // Morning: another worker comes, one is in a bad mood.
    const guest = ours("guest", 1);
    await reaches(jobs.calls, 0.1, COUNTS.calls);
    mood.shaky = true;
    await until("the one in a bad mood is on probation", () => seen.has("round-robin suspended"), 60_000);
    mood.shaky = false;
    await reaches(jobs.commands, 0.2, COUNTS.commands);
    await again(() => jobs.commands.hold());
    await site.broker.end("SIGKILL");
    await site.startBroker();
    // Noon: back at work; what was held is let go, what nobody wants is cancelled, the guest leaves.
    await again(() => jobs.commands.release());
    await again(() => extra.cancel());
    await reaches(jobs.commands, 0.5, COUNTS.commands);
    await guest.stop({ finish: true });
    await site.broker.end("SIGTERM");
    await site.startBroker();
    // Evening: the moody one is forgiven, if it was banned.
    for (const { name, standing } of await again(() => client.workers())) {
      if (standing !== "good") await again(() => client.ask("forgive", { name }));
    }
    for (const job of Object.values(jobs)) expect(await job.wait(), `job ${job.id}`).toBe("succeeded");
    expect(await extra.wait()).toBe("cancelled");
  } finally {
    clearInterval(watch);
    const { answered, refused } = await requests.stop();
    console.log(`requests: ${answered} answered, ${refused} refused with a code`);
    for (const stop of stops.reverse()) await stop();
  }

  const kinds = new Map<string, number>();
  let total = 0;
  for (const [name, count] of Object.entries(COUNTS) as [keyof typeof COUNTS, number][]) {
    const results = await resultsOf(jobs[name]);
    expect(
      results.map(({ index }) => index),
      name,
    ).toEqual(Array.from({ length: count }, (_, index) => index));
    for (const { worker } of results) kinds.set(worker, (kinds.get(worker) ?? 0) + 1);
    total += results.length;
  }
  const ran = new Set(readFileSync(notes, "utf8").trim().split("\n"));
  expect(ran.size).toBe(COUNTS.commands);
  console.log(`${total} tasks, lost: 0; by worker: ${JSON.stringify(Object.fromEntries(kinds))}`);
  console.log(`seen: ${[...seen].sort().join("; ")}`);
  expect(total).toBe(Object.values(COUNTS).reduce((sum, count) => sum + count));
}, 400_000);
