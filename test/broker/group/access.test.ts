/** Who is let in by one broker of a group is let in by all, and a join URL of one is good at every one. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect } from "../../../src/entries/client.js";
import { startWorker } from "../../../src/entries/worker.js";
import { parseJoinUrls } from "../../../src/protocols/laboro/broker-address.js";
import { until } from "../../support/wait.js";
import { atEnd, type Member, openGroup, PATIENCE_MS } from "./kit.js";

/** A worker has written down where another broker is. */
const hasHeardOf = (dir: string, url: string): Promise<boolean> =>
  until(
    `${url} is in brokers.json`,
    () => existsSync(join(dir, "brokers.json")) && readFileSync(join(dir, "brokers.json"), "utf8").includes(url),
    PATIENCE_MS,
  );

const ROLES = ["admin", "client", "worker", "read", "fuq"] as const;

describe("the brokers of a group", () => {
  it("have the same tokens, in the store and in each data directory", async () => {
    const { members, dir } = await openGroup(2);
    const [a, b] = members as unknown as [Member, Member];
    for (const role of ROLES) expect(b.broker.tokenOf(role)).toBe(a.broker.tokenOf(role));
    const [first, second] = [0, 1].map((at) => readFileSync(join(dir, `broker-${at}`, "tokens.json"), "utf8"));
    expect(second).toBe(first);
    const client = await connect({ broker: b.broker.url, token: a.broker.tokenOf("client") ?? "" });
    atEnd(async () => client.close());
    expect((await client.ask("jobs", {})).jobs).toEqual([]);
  });

  it("begin with those of the first one's data directory", async () => {
    const { join: enter, dir, members } = await openGroup(0);
    mkdirSync(join(dir, "broker-0"));
    const own = [{ role: "worker", token: "a-worker-of-old-times" }];
    writeFileSync(join(dir, "broker-0", "tokens.json"), JSON.stringify(own), { mode: 0o600 });
    await enter({ token: "an-admin-of-old-times" });
    await enter();
    expect(members.map(({ broker }) => broker.tokenOf("worker"))).toEqual(
      own.map(({ token }) => token).concat(own.map(({ token }) => token)),
    );
    expect(members.map(({ broker }) => broker.token)).toEqual(["an-admin-of-old-times", "an-admin-of-old-times"]);
  });

  it("show one CA: a worker that knows a join URL of one is let in at the other, and finds it by itself", async () => {
    const { members, dir } = await openGroup(2, { tls: "on", leaseMs: 2_000 });
    const [a, b] = members as unknown as [Member, Member];
    expect(a.broker.ca).toMatch(/^[0-9a-f]{64}$/);
    expect(b.broker.ca).toBe(a.broker.ca);
    const { urls, token, caFingerprint } = parseJoinUrls(a.broker.joinUrl(), "test");
    const worker = startWorker({
      broker: urls,
      token,
      ...(caFingerprint === undefined ? {} : { caFingerprint }),
      dir: join(dir, "w"),
    });
    atEnd(() => worker.stop({ graceMs: 0 }));
    await until("it is at a", () => a.broker.core.state.workers.get(worker.id)?.connected, PATIENCE_MS);
    await hasHeardOf(join(dir, "w"), b.broker.url);
    await until("a asks b", async () => (await a.client.ask("status", {})).workers.connected === 1, PATIENCE_MS);
    await a.broker.stop();
    await until("it is at b", () => b.broker.core.state.workers.get(worker.id)?.connected, PATIENCE_MS);
  });

  it("are remembered by a worker whose own broker is gone when it starts again", async () => {
    const { members, dir } = await openGroup(2);
    const [a, b] = members as unknown as [Member, Member];
    const at = join(dir, "w");
    const first = a.worker({ dir: at });
    await hasHeardOf(at, b.broker.url);
    await first.stop({ graceMs: 0 });
    await a.broker.stop();
    const second = a.worker({ dir: at });
    await until("it is at b", () => b.broker.core.state.workers.get(second.id)?.connected, PATIENCE_MS);
  });

  it("are listed, with what they are", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as unknown as [Member, Member];
    b.worker({ services: { echo: async (body) => body } });
    await until(
      "the service is known",
      async () => (await a.client.ask("brokers", {})).brokers[1]?.services.length === 1,
      PATIENCE_MS,
    );
    const { brokers } = await a.client.ask("brokers", {});
    expect(brokers).toMatchObject([
      { name: new URL(a.broker.url).host, self: true, state: "open", fallback: false, workers: 0 },
      {
        name: new URL(b.broker.url).host,
        self: false,
        state: "open",
        services: [{ pool: "default", service: "echo" }],
      },
    ]);
    expect(brokers.every(({ heartbeatAgeMs }) => heartbeatAgeMs >= 0 && heartbeatAgeMs < PATIENCE_MS)).toBe(true);
    await expect(a.client.ask("stepBack", { broker: "nobody" })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
    await expect(a.client.ask("stepBack", { broker: brokers[1]?.name ?? "" })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
  });
});
