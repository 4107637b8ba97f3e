import { setTimeout as pause } from "node:timers/promises";
import { expect, it } from "vitest";
import type { Handler } from "../../src/entries/worker.js";
import { openShop, resultsOf } from "../client/shop.js";
import { until } from "../support/wait.js";

const TASKS = 400;

it("workers that are replaced one after another call each handler once, and every result is recorded", async () => {
  const { client, worker } = await openShop();
  const calls = new Map<string, number>();
  const mail: Handler = async (body) => {
    const to = Buffer.from(body).toString();
    calls.set(to, (calls.get(to) ?? 0) + 1);
    await pause(1 + (Number(to) % 7) * 3);
    return `sent to ${to}`;
  };
  const start = async () => {
    const started = worker({ slots: 4, services: { mail } });
    await until("it has joined", () => started.joined);
    return started;
  };
  const workers = [await start(), await start()];
  const entries = Array.from({ length: TASKS }, (_, index) => String(index));
  const job = await client.submit({ recipe: { kind: "call", service: "mail" }, entries });
  let ended = false;
  const end = job.wait().finally(() => (ended = true));
  let replaced = 0;
  while (!ended) {
    workers.push(await start());
    await workers.shift()?.stop();
    replaced++;
  }
  expect(await end).toBe("succeeded");
  expect(replaced).toBeGreaterThan(1);
  const twice = [...calls].filter(([, count]) => count !== 1);
  const results = await resultsOf(job);
  const failed = results.filter(({ state }) => state !== "succeeded");
  const texts = await Promise.all(entries.map((_, index) => job.text(index)));
  const lost = texts.filter((text, index) => text !== `sent to ${index}`);
  expect({ called: calls.size, recorded: results.length, twice, failed, lost }).toEqual({
    ...{ called: TASKS, recorded: TASKS, twice: [], failed: [], lost: [] },
  });
});
