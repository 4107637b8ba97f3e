import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { connect } from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";
import { until } from "../support/wait.js";

it("a worker that is away when the broker starts again keeps its name, its slots and what it uses of them", async () => {
  const dir = mkdtempSync(join(tmpdir(), "laboro-away-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const first = await startBroker({ dir, port: 0 });
  const { url, token } = first;
  const worker = startWorker({ broker: url, token, name: "w1", slots: 4, tags: ["big"], resources: { gpu: 1 } });
  onTestFinished(() => worker.stop({ graceMs: 0 }));
  const before = await connect({ broker: url, token });
  await before.submit({ recipe: { kind: "command", argv: ["sleep", "60"] }, tags: ["big"] });
  await until("the task runs", async () => (await before.ask("status", {})).tasks.running === 1);
  before.close();
  await first.stop();
  const second = await startBroker({ dir, port: 0 });
  onTestFinished(() => second.stop());
  const client = await connect({ broker: second.url, token: second.token });
  onTestFinished(() => client.close());
  expect(await client.workers()).toMatchObject([
    {
      ...{ name: "w1", protocol: "laboro", pool: "default", tags: ["big"], connected: false, tasks: 1 },
      ...{ total: { slots: 4, gpu: 1 }, free: { slots: 3, gpu: 1 } },
    },
  ]);
  expect(await client.job(1).explain(0)).toBe(
    "worker w1 has it and is away; it is kept for it during the grace period",
  );
});
