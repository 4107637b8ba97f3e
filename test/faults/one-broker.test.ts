/** One broker on SQLite with two workers: processes killed and frozen, links cut, clocks set, too little memory and too few descriptors. */
import { connect } from "node:net";
import { it } from "vitest";
import type { RunLog } from "../support/batch.js";
import { batchUnder, type FaultBatch, FULL, TEST_MS } from "../support/fault-batch.js";
import { type Direction, type Proxy as Network, proxyTo } from "../support/proxy.js";
import { SeededRandom } from "../support/random.js";
import { type BrokerLaunch, type Site, sites, type WorkerLaunch } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const TASKS = FULL ? 1_000 : 40;
const ROUNDS = FULL ? 10 : 1;
const DAY_MS = 86_400_000;
const SLOTS = 2;
const BROKER: BrokerLaunch = { heartbeatMs: 200 };
const newSite = sites();
const random = new SeededRandom();

interface Setting {
  readonly broker?: BrokerLaunch;
  readonly worker?: WorkerLaunch;
  /** The workers reach the broker through a proxy. */
  readonly far?: boolean;
}

interface Parts {
  readonly site: Site;
  readonly proxy: Network | undefined;
  readonly startWorkers: () => Promise<void>;
}

/** One row of the table, as a test of its own. */
function fault(
  name: string,
  setting: Setting & Pick<FaultBatch, "mayStartTwice">,
  happens: (parts: Parts, log: RunLog) => Promise<void>,
): void {
  it(
    `${name}: nothing is lost`,
    async () => {
      const site = newSite();
      await site.startBroker({ ...BROKER, ...setting.broker });
      const proxy = setting.far === true ? await proxyTo(Number(new URL(site.url).port)) : undefined;
      if (proxy !== undefined) site.atEnd(() => proxy.close());
      const launch = { slots: SLOTS, ...setting.worker, ...(proxy === undefined ? {} : { url: proxy.url }) };
      const startWorkers = async (): Promise<void> => {
        await Promise.all(["one", "two"].map((worker) => site.startWorker(worker, launch)));
      };
      await startWorkers();
      const { mayStartTwice = false } = setting;
      const said = (): string => [site.broker, site.workerNamed("one")].map((one) => one.said.slice(-3_000)).join("\n");
      const batch = { fault: name, tasks: TASKS, client: await site.client(), dir: site.dir, mayStartTwice, said };
      await batchUnder(batch, (log) => happens({ site, proxy, startWorkers }, log));
    },
    TEST_MS,
  );
}

/** Each round begins when tasks are started again. */
const rounds = async (log: RunLog, action: (round: number) => Promise<void>): Promise<void> => {
  for (let round = 0; round < ROUNDS; round++) {
    const before = log.count;
    await until("work goes on", () => log.count > before || log.count >= TASKS);
    await sleep(random.next() * 100);
    await action(round);
  }
};

fault("broker: kill -9", {}, ({ site }, log) =>
  rounds(log, async () => {
    await site.broker.end("SIGKILL");
    await sleep(random.next() * 300);
    await site.startBroker();
  }),
);

fault("worker: kill -9", { mayStartTwice: true }, ({ site }, log) =>
  rounds(log, async (round) => {
    const name = round % 2 === 0 ? "one" : "two";
    await site.workerNamed(name).end("SIGKILL");
    await site.startWorker(name, { slots: SLOTS });
  }),
);

fault("broker and workers at once: kill -9", { mayStartTwice: true }, ({ site, startWorkers }, log) =>
  rounds(log, async () => {
    const all = [site.broker, site.workerNamed("one"), site.workerNamed("two")];
    await Promise.all(all.map((one) => one.end("SIGKILL")));
    await site.startBroker();
    await startWorkers();
  }),
);

fault("broker: SIGSTOP for longer than three heartbeats", {}, ({ site }, log) =>
  rounds(log, async () => {
    site.broker.signal("SIGSTOP");
    await sleep(1_000);
    site.broker.signal("SIGCONT");
  }),
);

fault("worker: SIGSTOP past its grace", { broker: { graceMs: 300 }, mayStartTwice: true }, ({ site }, log) =>
  rounds(log, async () => {
    site.workerNamed("one").signal("SIGSTOP");
    await sleep(1_500);
    site.workerNamed("one").signal("SIGCONT");
  }),
);

const HOLES: readonly (readonly [string, readonly Direction[]])[] = [
  ["half-open link, nothing from worker to broker", ["up"]],
  ["half-open link, nothing from broker to worker", ["down"]],
  ["black hole between workers and broker", ["up", "down"]],
];
for (const [name, directions] of HOLES) {
  fault(name, { far: true }, async ({ proxy }) => {
    const accepted = proxy?.accepted ?? 0;
    proxy?.swallow(directions);
    await until("both workers try again", () => (proxy?.accepted ?? 0) >= accepted + 2);
    proxy?.heal();
  });
}

fault("link with a delay of 200 ms", { far: true }, async ({ proxy }) => proxy?.delay(200));

fault("link cut at random bytes", { far: true }, ({ proxy }, log) =>
  rounds(log, async () => {
    const accepted = proxy?.accepted ?? 0;
    proxy?.cutAfter(random.between(1, 4_000));
    await until("both links were cut", () => (proxy?.accepted ?? 0) >= accepted + 2);
  }),
);

const SMALL_HEAP = { NODE_OPTIONS: "--max-old-space-size=48" };
fault("broker with a heap of 48 MiB", { broker: { env: SMALL_HEAP } }, async () => {});

fault("no descriptors left at the broker", { broker: { openFiles: 200 } }, async ({ site }) => {
  const { port, hostname } = new URL(site.url);
  let over = 0;
  const idle = Array.from({ length: 300 }, () =>
    connect(Number(port), hostname)
      .on("error", () => {})
      .once("connect", () => over++),
  );
  await until("all have connected", () => over === idle.length);
  for (const socket of idle) socket.destroy();
});

fault("worker with 64 descriptors", { worker: { openFiles: 64 } }, async () => {});

for (const [name, days] of [
  ["kill -9 of the broker, then a clock a day ahead", 1],
  ["kill -9 of the broker, then a clock a day behind", -1],
] as const) {
  fault(name, {}, async ({ site }) => {
    await site.broker.end("SIGKILL");
    await site.startBroker({ ...BROKER, clockAheadMs: days * DAY_MS });
  });
}
