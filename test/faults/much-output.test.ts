import { expect, it } from "vitest";
import type { JobHandle } from "../../src/entries/client.js";
import { RunLog, resultsOf } from "../support/batch.js";
import { memoryOf } from "../support/process-table.js";
import { again, type Site, sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const MIB = 1024 * 1024;
const WRITTEN = 100_000_000;
const CAP = 16 * MIB;
/** MiB over idle that neither process may go. */
const ALLOWED = 120;
const newSite = sites();

/** Lines of 1,000 bytes that say where they are: each begins with its own offset. */
const LINE = 1_000;
const FLOOD = `awk 'BEGIN { for (i = 0; i < ${WRITTEN}; i += ${LINE}) printf "%09d%${LINE - 10}s\\n", i, "" }'`;

interface Piece {
  readonly offset: number;
  readonly end: number;
}

/** Checks every byte, and gives the stretches that are there. */
async function stretchesOf(job: JobHandle): Promise<Piece[]> {
  const stretches: { offset: number; end: number }[] = [];
  for await (const { offset, bytes } of job.output(0, { stream: "stdout" })) {
    const last = stretches.at(-1);
    const end = offset + bytes.length;
    if (last?.end === offset) last.end = end;
    else stretches.push({ offset, end });
    const text = Buffer.from(bytes).toString("latin1");
    for (let at = (LINE - (offset % LINE)) % LINE; at + 9 <= text.length; at += LINE) {
      if (Number(text.slice(at, at + 9)) !== offset + at) throw new Error(`other bytes at offset ${offset + at}`);
    }
  }
  return stretches;
}

async function flood(site: Site, beforeEnd: (log: RunLog) => Promise<void>) {
  await site.startBroker();
  const worker = await site.startWorker("one");
  const client = await site.client();
  await (await client.submit({ recipe: { kind: "command", argv: ["echo", "warm"] } })).wait();
  const idle = { worker: memoryOf(worker.pid).now, broker: memoryOf(site.broker.pid).now };
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.recipe(FLOOD) });
  await beforeEnd(log);
  expect(await job.wait()).toBe("succeeded");
  const most = { worker: memoryOf(worker.pid).most, broker: memoryOf(site.broker.pid).most };
  const grown = { worker: Math.round(most.worker - idle.worker), broker: Math.round(most.broker - idle.broker) };
  return { job, log, grown };
}

async function expectHeadAndTail(what: string, { job, log, grown }: Awaited<ReturnType<typeof flood>>): Promise<void> {
  const stretches = await again(() => stretchesOf(job));
  const results = await resultsOf(job);
  const kept = stretches.reduce((sum, { offset, end }) => sum + end - offset, 0);
  console.log(
    `${what}: lost: ${1 - results.length}, run twice: ${log.count - 1}, kept ${kept} of ${results[0]?.outputBytes} bytes in ${stretches.length} stretches, ` +
      `worker grew ${grown.worker} MiB, broker ${grown.broker} MiB`,
  );
  expect(results).toMatchObject([{ state: "succeeded", attempt: 1, outputBytes: WRITTEN }]);
  expect(log.count).toBe(1);
  // Head and tail, half the cap each, with the gap between them visible in the offsets.
  expect(stretches).toHaveLength(2);
  const [head, tail] = stretches;
  expect(head?.offset).toBe(0);
  expect(head?.end).toBe(CAP / 2);
  expect(tail?.end).toBe(WRITTEN);
  expect(kept).toBeGreaterThan(CAP * 0.95);
  expect(kept).toBeLessThan(CAP * 1.05);
  expect(grown.worker).toBeLessThan(ALLOWED);
  expect(grown.broker).toBeLessThan(ALLOWED);
}

it("keeps head and tail of 100 MB of output and lets no process grow with it", async () => {
  await expectHeadAndTail("100 MB of output", await flood(newSite(), async () => {}));
});

it("keeps the same where the broker is down while the task writes", async () => {
  const site = newSite();
  const flooded = await flood(site, async (log) => {
    await until("the task has begun", () => log.count === 1);
    await site.broker.end("SIGKILL");
    await sleep(1_000);
    await site.startBroker();
  });
  await expectHeadAndTail("100 MB of output, broker down for the first second", flooded);
});

it("keeps the output of attempts apart", async () => {
  const site = newSite();
  await site.startBroker();
  await site.startWorker("one");
  const client = await site.client();
  const line = 'echo "this is attempt $LABORO_ATTEMPT"; [ "$LABORO_ATTEMPT" = 2 ]';
  const job = await client.submit({ recipe: { kind: "command", argv: ["sh", "-c", line] }, retries: 1 });
  expect(await job.wait()).toBe("succeeded");
  const text = (attempt: number): Promise<string> =>
    again(async () => {
      let all = "";
      for await (const { bytes } of job.output(0, { attempt })) all += Buffer.from(bytes).toString();
      return all;
    });
  const kept = [await text(1), await text(2)];
  console.log(`a task tried twice: outputs kept: ${kept.filter((one) => one !== "").length}`);
  expect(kept).toEqual(["this is attempt 1\n", "this is attempt 2\n"]);
  expect(await again(() => job.text(0))).toBe("this is attempt 2\n");
});
