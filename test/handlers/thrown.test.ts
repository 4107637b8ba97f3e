import { describe, expect, it } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import { openTestBroker, type TestBroker } from "../support/test-broker.js";
import { throwOdd } from "./tasks.mjs";

const odd = defineTask<string, string>("odd");

const WHERE: readonly (readonly ["inline" | "in a thread", (setup: TestBroker) => Promise<unknown>])[] = [
  ["inline", async (setup) => setup.worker().handle(odd, throwOdd)],
  ["in a thread", (setup) => setup.worker().handle(new URL("./tasks.mjs", import.meta.url))],
];
const THROWN = [
  ["undefined", /^the handler threw undefined$/],
  ["an empty message", /^RangeError$/],
  ["a getter that throws", /cannot be written as text/],
  ["a proxy that throws", /cannot be written as text/],
  ["a chain of huge causes", /^huge /],
  ["an object", /^the handler threw \{"code":"EQUOTA","left":0\}$/],
  ["errors of several addresses", /^::1 refused; 127.0.0.1 refused$/],
  ["itself as cause", /^round$/],
] as const;

describe.each(WHERE)("a handler %s", (_where, open) => {
  it("fails its own task, whatever it throws, and the worker goes on", async () => {
    const setup = await openTestBroker();
    await open(setup);
    for (const [what, message] of THROWN) {
      const job = await setup.client.add(odd, what);
      const error = await job.result({ timeoutMs: 10_000 }).catch((thrown) => thrown);
      expect([what, error]).toMatchObject([what, { code: "LABORO_TASK_FAILED", message }]);
      await expect(setup.client.call(odd, what)).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED", message });
    }
    expect(await (await setup.client.add(odd, "")).result()).toBe("nothing thrown");
  });

  it("fails a request with the name, stack, code and cause of what it throws", async () => {
    const setup = await openTestBroker();
    await open(setup);
    const error = await setup.client.call(odd, "with a cause").catch((thrown) => thrown);
    expect(error).toMatchObject({ name: "LaboroError", code: "LABORO_SERVICE_FAILED", message: "bad file" });
    expect(error.cause).toMatchObject({ name: "TypeError", message: "bad file", code: "EBAD" });
    expect(error.cause.stack).toContain("tasks.mjs");
    expect(error.cause.cause).toMatchObject({ name: "RangeError", message: "too long" });
    await expect(setup.client.request("unknown", "", { timeoutMs: 50 })).rejects.not.toHaveProperty("cause");
  });
});
