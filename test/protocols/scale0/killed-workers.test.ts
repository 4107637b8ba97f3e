/**
 * Requests without end while a worker is killed every second: 500 of them a second. Each is to be answered or
 * refused, none twice, none in silence.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { Launched } from "../../support/launched.js";
import { scaled } from "../../support/scale.js";
import { sleep, until } from "../../support/wait.js";
import { atEnd, dealer, openScale0 } from "./kit.js";

const REQUESTS = scaled(2_000);
const A_SECOND = 500;
const WORKERS = 4;

describe("with a worker killed every second", () => {
  it(
    `${REQUESTS} requests are each answered or refused, none twice, none in silence`,
    async () => {
      const setup = await openScale0();
      await setup.client.ask("configSet", { settings: { heartbeat_interval: 2_000 } });
      const script = join(fileURLToPath(import.meta.url), "..", "literal-worker.mjs");
      const workers: Launched[] = [];
      let started = 0;
      const launch = (): void => {
        const name = `w${++started}`;
        const worker = new Launched(name, [script, setup.workers, name, "4"], { env: process.env });
        workers.push(worker);
        atEnd(() => worker.end("SIGKILL"));
      };
      for (let i = 0; i < WORKERS; i++) launch();
      await until("all are there", async () => (await setup.client.workers()).length === WORKERS, 60_000);

      const client = dealer(setup.clients, "asker");
      const heard = new Map<number, string[]>();
      let total = 0;
      const listening = (async () => {
        while (total < REQUESTS) {
          const [command, { message_id, code }, body] = await client.hear();
          const id = Number(message_id);
          const what = command === "WORKREPLY" ? (body === String(id) ? "answered" : "answered wrongly") : String(code);
          heard.set(id, [...(heard.get(id) ?? []), what]);
          total++;
        }
      })();
      let kills = 0;
      const killing = setInterval(() => {
        kills++;
        void workers.shift()?.end("SIGKILL");
        launch();
      }, 1_000);
      atEnd(() => clearInterval(killing));
      const begun = performance.now();
      for (let id = 0; id < REQUESTS; id++) {
        const due = begun + (id * 1_000) / A_SECOND;
        if (due > performance.now()) await sleep(due - performance.now());
        // Every other one may be done twice.
        await client.say(
          "WORKREQUEST",
          { service: "echo", message_id: id, timeout: 25_000, retry: id % 2 === 0 },
          String(id),
        );
      }
      await until("every request has had its answer", () => heard.size === REQUESTS, 60_000);
      clearInterval(killing);
      await listening;
      expect(await client.silent(500)).toBe(true);
      const outcomes: Record<string, number> = {};
      for (const all of heard.values()) outcomes[all.join("+")] = (outcomes[all.join("+")] ?? 0) + 1;
      const silent = REQUESTS - heard.size;
      console.log(JSON.stringify({ requests: REQUESTS, kills, silent, ...outcomes }));
      expect(silent).toBe(0);
      expect(Object.keys(outcomes).sort()).toEqual(expect.arrayContaining(["answered"]));
      expect(Object.keys(outcomes).filter((one) => one !== "answered" && one !== "504")).toEqual([]);
      // What was at a worker when it was killed, and might not be done twice.
      expect(outcomes["504"] ?? 0).toBeLessThanOrEqual(kills);
      expect((await setup.client.ask("status", {})).requests).toEqual({ waiting: 0, running: 0 });
    },
    120_000 + (REQUESTS / A_SECOND) * 2_000,
  );
});
