/** Workers that are killed under load: every request is answered once, and the table is right again. */
import { type ChildProcess, spawn } from "node:child_process";
import { afterEach, expect, it } from "vitest";
import { RoundRobinClient } from "../../../src/protocols/round-robin/worker/worker.js";
import { checkInvariants } from "../../dispatch/invariants.js";
import { LABORO } from "../../support/launched.js";
import { scaled } from "../../support/scale.js";
import { until } from "../../support/wait.js";
import { atEnd, openPlace } from "./place.js";

const COUNT = scaled(3_000);
const IN_FLIGHT = 64;
/** Ten workers of ten slots: so many messages can be with them. */
const KILLED_SLOTS = 100;

const started: ChildProcess[] = [];

afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
});

/** A console with ten workers. */
function tenWorkers(url: string): ChildProcess {
  const child = spawn(process.execPath, [LABORO, "rr", "worker", "-d", "0", "--connect", url], {
    stdio: ["pipe", "ignore", "inherit"],
  });
  started.push(child);
  child.stdin?.write("bulk\n");
  return child;
}

it("loses at most what the killed ones had, and says so to each asker", { timeout: 180_000 }, async () => {
  const place = await openPlace();
  const first = tenWorkers(place.url);
  tenWorkers(place.url);
  await until("twenty are there", () => place.listener.server.workers().length === 20, 60_000);
  const client = await RoundRobinClient.open({ url: place.url, timeoutMs: 120_000 });
  atEnd(() => client.close());
  let begun = 0;
  let answered = 0;
  const failures: string[] = [];
  const asker = async (): Promise<void> => {
    while (begun < COUNT) {
      if (++begun === Math.floor(COUNT / 3)) first.kill("SIGKILL");
      await client.pingTracked().then(
        () => answered++,
        ({ code }: { code: string }) => failures.push(code),
      );
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, asker));
  console.log(`killed workers: ${COUNT} asked, ${answered} answered, ${failures.length} told that they failed`);
  expect(answered + failures.length).toBe(COUNT);
  expect(failures.every((code) => code === "LABORO_SERVICE_FAILED")).toBe(true);
  expect(failures.length).toBeLessThanOrEqual(KILLED_SLOTS);
  await until("ten are left, all slots free", () => {
    const rows = place.listener.server.workers();
    return rows.length === 10 && rows.every(({ freeSlots: free, slots }) => free === slots);
  });
  const { state } = place.setup.broker.core;
  checkInvariants(state);
  expect(state.requests.size).toBe(0);
  for (const { free, profile } of state.workers.values()) expect(free.slots).toBe(profile.total.slots);
});
