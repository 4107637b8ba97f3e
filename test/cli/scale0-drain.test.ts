import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startedWorker } from "../protocols/scale0/kit.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

const listeners = [{ name: "scale0" as const, host: "127.0.0.1", ports: [0, 0, 0] }];

describe("laboro drain --broker", () => {
  it("hands out nothing new and sends peers away, until it is taken back", async () => {
    const setup = await openCliBroker({ listeners });
    const brokers = '[{"identity":"west","worker_uri":"tcp://10.0.0.2:8081","client_uri":"tcp://10.0.0.2:8080"}]';
    expect((await setup.laboro(["config", "set", `brokers=${brokers}`])).code).toBe(0);
    const worker = await startedWorker({ workers: setup.broker.listeners[0]?.urls[1] ?? "" }, "w1");
    setup.worker({ name: "own" });
    await until("both are there", async () => (await setup.client.workers()).length === 2);
    expect(await setup.laboro(["drain", "--broker"])).toEqual({
      code: 0,
      stdout: "the broker assigns no more tasks; running tasks continue\n",
      stderr: "",
    });
    expect([(await worker.hear())[1].code, (await worker.hear())[0]]).toEqual([301, "CHANGEBROKER"]);
    const job = await setup.client.submit({ recipe: TRUE });
    // Commits go in the order of what was asked: once this one is answered, the first would have been handed out.
    await setup.client.submit({ recipe: TRUE, held: true });
    expect((await setup.client.ask("job", { job: job.id })).counters).toMatchObject({ waiting: 1, running: 0 });
    expect((await setup.laboro(["drain", "--broker", "--off"])).stdout).toBe("the broker assigns tasks again\n");
    await job.wait();
  });

  it("is not confused with a worker, or with a broker's address", async () => {
    const setup = await openCliBroker();
    const address = join(setup.dir, "admin.url");
    writeFileSync(address, setup.broker.joinUrl("admin"));
    const said = [
      await setup.laboro(["drain"]),
      await setup.laboro(["drain", "w1", "--broker"]),
      await setup.laboro(["drain", "w1", "--off"]),
      await setup.laboro(["drain", "--broker", `@${address}`]),
    ];
    expect(said.map(({ code }) => code)).toEqual([2, 2, 2, 2]);
    const named = await setup.laboro(["drain", "w1", "--broker", `@${address}`]);
    expect(named.stderr).toContain("there is no worker w1");
  });
});
