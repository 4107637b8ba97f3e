/** The broker is killed, and clocks are set, while delayed jobs wait. */
import * as fs from "node:fs";
import { expect, it } from "vitest";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const DAY_MS = 86_400_000;
const JOBS = 60;

it("a broker that is killed again and again starts every delayed job, once", async () => {
  const site = newSite();
  await site.startBroker({});
  const client = await site.client();
  fs.mkdirSync(site.path("done"));
  const due: number[] = [];
  for (let i = 0; i < JOBS; i++) {
    const line = `date +%s%3N >> ${site.path("done")}/${i}`;
    const job = await client.submit({ recipe: { kind: "command", argv: ["/bin/sh", "-c", line] }, delayMs: 100 * i });
    due.push((await job.info()).notBefore ?? 0);
  }
  const after = await client.submit({
    recipe: { kind: "command", argv: ["/bin/sh", "-c", `ls ${site.path("done")} | wc -l`] },
    after: Array.from({ length: JOBS }, (_, i) => ({ job: i + 1 })),
  });
  await site.startWorker("one", { slots: 2 });
  for (let round = 0; round < 4; round++) {
    await until("some are done", () => fs.readdirSync(site.path("done")).length > round * 10);
    await site.broker.end("SIGKILL");
    await site.startBroker({});
  }
  const again = await site.client();
  expect(await again.job(after.id).wait()).toBe("succeeded");
  expect((await again.job(after.id).text(0)).trim()).toBe(String(JOBS));
  const starts = due.map((_, i) =>
    fs
      .readFileSync(`${site.path("done")}/${i}`, "utf8")
      .trim()
      .split("\n")
      .map(Number),
  );
  console.log(`lost ${JOBS - starts.length}, run twice ${starts.filter(({ length }) => length > 1).length}`);
  expect(starts.map(({ length }) => length)).toEqual(due.map(() => 1));
  for (const [i, [start = 0]] of starts.entries()) expect(start).toBeGreaterThanOrEqual(Math.floor(due[i] ?? 0));
});

it("a clock that was set back while the broker was down lets a delay end in time, and a named time wait for it", async () => {
  const site = newSite();
  await site.startBroker({ clockAheadMs: DAY_MS });
  const client = await site.client();
  const recipe = { kind: "command", argv: ["true"] } as const;
  const relative = await client.submit({ recipe, delayMs: 3_000 });
  const named = await client.submit({ recipe, at: Date.now() + DAY_MS + 2_000 });
  await site.broker.end("SIGKILL");
  await site.startBroker({});
  await site.startWorker("one");
  expect(await client.job(relative.id).wait()).toBe("succeeded");
  expect((await client.job(named.id).info()).state).toBe("delayed");
});
