import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openShop } from "../client/shop.js";
import { until } from "../support/wait.js";

it("no task starts while less memory is available than asked for, and the log says so", async () => {
  const { dir, client, worker } = await openShop();
  const memoryFile = join(dir, "meminfo");
  const available = (kilobytes: number): void =>
    writeFileSync(memoryFile, `MemTotal: 9000 kB\nMemFree: 9000 kB\nMemAvailable:    ${kilobytes} kB\n`);
  const said: string[] = [];
  const say = (_fields: object, text: string): void => void said.push(text);
  available(1024);
  worker({ minMemory: 2 * 1024 * 1024, memoryFile, log: { info: say, warn: say, error: say } });
  const job = await client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 3 });
  await until("the log says why tasks wait", () => said.some((text) => text.startsWith("only 1 MiB of memory")));
  expect((await client.workers())[0]?.tasks).toBeGreaterThan(0);
  expect((await job.info()).counters.succeeded).toBe(0);
  available(4096);
  expect(await job.wait()).toBe("succeeded");
  expect(said.filter((text) => text.includes("memory"))).toHaveLength(2);
});
