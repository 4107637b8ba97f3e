import { describe, expect, it } from "vitest";
import { ModelWorld } from "../store/model-store.js";
import { laboro, openCliBroker } from "./support/cli.js";

describe("laboro brokers", () => {
  it("tells of a broker that has its store to itself", async () => {
    const setup = await openCliBroker();
    const { stdout } = await setup.laboro(["brokers"], { process: true });
    expect(stdout).toContain(`${new URL(setup.broker.url).host} *`);
    const { brokers } = JSON.parse((await setup.laboro(["brokers", "--json"])).stdout);
    expect(brokers).toMatchObject([{ self: true, state: "open", fallback: false, workers: 0, heartbeatAgeMs: 0 }]);
  });

  it("lists a group, and refuses to send back what is no fallback", async () => {
    const world = new ModelWorld();
    const store = () => world.store();
    const a = await openCliBroker({ store });
    const b = await openCliBroker({ store });
    const { stdout } = await b.laboro(["brokers"]);
    expect(stdout).toContain(`${new URL(b.broker.url).host} *`);
    expect(stdout).toContain(`${new URL(a.broker.url).host} `);
    const { code, stderr } = await b.laboro(["brokers", "--step-back", new URL(a.broker.url).host]);
    expect(code).toBe(2);
    expect(stderr).toContain("is no fallback");
  });
});

describe("laboro serve --store", () => {
  it.each([
    ["a password in an argument", ["--store", "postgres://me:secret@db/work"], "everyone can see it"],
    ["what is no database", ["--store", "mysql://db/work"], "expected postgres://"],
    ["a file that is not there", ["--store", "@/nowhere/store.url"], "cannot be read"],
    ["a fallback without one", ["--fallback"], "need --store"],
  ])("refuses %s", async (_what, args, said) => {
    const { code, stderr } = await laboro(["serve", "--data", "/nowhere/data", ...args]);
    expect(code).toBe(2);
    expect(stderr).toContain(said);
    expect(stderr).not.toContain("secret");
  });
});
