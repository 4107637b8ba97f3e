/** Brokers of a group that die, freeze, or come and go, in the middle of a batch. */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { batchUnder, FULL, TEST_MS } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { SeededRandom } from "../support/random.js";
import { Site } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const TASKS = FULL ? 1_500 : 120;
const random = new SeededRandom();
let server: PostgresServer;
let group: GroupSite;
let client: Client;

beforeAll(async () => {
  server = await startPostgres();
  group = await GroupSite.open(new Site(), server, { leaseMs: 2_000 });
  await Promise.all([group.broker("a"), group.broker("b")]);
  await Promise.all([group.worker("one", "a"), group.worker("two", "b")]);
  client = await group.client("a", "b");
  await group.workersAre(client, 2);
}, TEST_MS);

afterAll(async () => {
  const left = await group.site.close();
  await server.remove();
  expect(left).toEqual([]);
}, TEST_MS);

it(
  "kill -9 of a broker: its workers go to the other and nothing is run again",
  async () => {
    await batchUnder(group.batch("group: kill -9 of a broker, its workers move", TASKS, client), async () => {
      for (let round = 0; round < (FULL ? 6 : 1); round++) {
        const victim = round % 2 === 0 ? "a" : "b";
        await sleep(random.next() * 100);
        await group.brokerNamed(victim).end("SIGKILL");
        const survivor = await group.client(victim === "a" ? "b" : "a");
        await group.workersAre(survivor, 2);
        await group.broker(victim);
      }
    });
  },
  TEST_MS,
);

it(
  "a broker that freezes for longer than its lease: it reopens or resumes, and nothing is run again",
  async () => {
    const frozen = group.brokerNamed("a");
    await batchUnder(
      group.batch("group: SIGSTOP of a broker past its lease", TASKS, await group.client("b")),
      async () => {
        frozen.signal("SIGSTOP");
        await sleep(4_000);
        frozen.signal("SIGCONT");
        // Frozen in a commit, it holds locks that keep the other from taking over.
        await frozen.says(/this broker reopens|the store answers again/, DEADLINE_MS);
      },
    );
  },
  TEST_MS,
);

it.runIf(FULL)(
  "kill -9 of all brokers at once (needs LABORO_FAULTS=full)",
  async () => {
    await batchUnder(group.batch("group: kill -9 of all brokers", TASKS, client), async () => {
      for (let round = 0; round < 3; round++) {
        await Promise.all(["a", "b"].map((name) => group.brokerNamed(name).end("SIGKILL")));
        await sleep(random.next() * 1_000);
        await Promise.all(["a", "b"].map((name) => group.broker(name)));
        await group.workersAre(client, 2);
      }
    });
  },
  TEST_MS,
);

it(
  "a fallback takes over from the last broker and steps back when others are there again",
  async () => {
    await group.broker("spare", { more: ["--fallback"] });
    await group.brokerNamed("a").end("SIGTERM");
    const last = await group.client("b");
    await group.workersAre(last, 2);
    const named = async (): Promise<string[]> =>
      (await last.ask("brokers", {})).brokers.map(({ state }) => state).sort();
    await until("the fallback is seen", async () => (await named()).join() === "open,standby", DEADLINE_MS);
    await batchUnder(group.batch("group: kill -9 of the last broker beside a fallback", TASKS, last), async () => {
      await group.brokerNamed("b").end("SIGKILL");
      await group.brokerNamed("spare").says("listening on", DEADLINE_MS);
      await group.workersAre(last, 2);
    });
    await group.broker("a");
    const { brokers } = await last.ask("brokers", {});
    const spare = brokers.find(({ fallback }) => fallback)?.name ?? "";
    await last.ask("stepBack", { broker: spare });
    const back = await group.client("a");
    await group.workersAre(back, 2);
    await until(
      "it stands by",
      async () => (await back.ask("brokers", {})).brokers.some(({ state }) => state === "standby"),
      DEADLINE_MS,
    );
  },
  TEST_MS,
);
