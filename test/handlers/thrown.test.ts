import { describe, expect, it } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import { openShop, type Shop } from "../client/shop.js";
import { throwOdd } from "./tasks.mjs";

const odd = defineTask<string, string>("odd");

const WHERE: readonly (readonly ["inline" | "in a thread", (shop: Shop) => Promise<unknown>])[] = [
  ["inline", async (shop) => shop.worker().handle(odd, throwOdd)],
  ["in a thread", (shop) => shop.worker().handle(new URL("./tasks.mjs", import.meta.url))],
];
const THROWN = [
  ["undefined", /^the handler threw undefined$/],
  ["an empty message", /^RangeError$/],
  ["a getter that throws", /cannot be written as text/],
  ["a proxy that throws", /cannot be written as text/],
  ["a chain of huge causes", /^huge /],
  ["itself as cause", /^round$/],
] as const;

describe.each(WHERE)("a handler %s", (_where, open) => {
  it("fails its own task, whatever it throws, and the worker goes on", async () => {
    const shop = await openShop();
    await open(shop);
    for (const [what, message] of THROWN) {
      const job = await shop.client.add(odd, what);
      const error = await job.result({ timeoutMs: 10_000 }).catch((thrown) => thrown);
      expect([what, error]).toMatchObject([what, { code: "LABORO_TASK_FAILED", message }]);
      await expect(shop.client.call(odd, what)).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED", message });
    }
    expect(await (await shop.client.add(odd, "")).result()).toBe("nothing thrown");
  });

  it("fails a request with the name, stack, code and cause of what it throws", async () => {
    const shop = await openShop();
    await open(shop);
    const error = await shop.client.call(odd, "with a cause").catch((thrown) => thrown);
    expect(error).toMatchObject({ name: "LaboroError", code: "LABORO_SERVICE_FAILED", message: "bad file" });
    expect(error.cause).toMatchObject({ name: "TypeError", message: "bad file", code: "EBAD" });
    expect(error.cause.stack).toContain("tasks.mjs");
    expect(error.cause.cause).toMatchObject({ name: "RangeError", message: "too long" });
    await expect(shop.client.request("unknown", "", { timeoutMs: 50 })).rejects.not.toHaveProperty("cause");
  });
});
