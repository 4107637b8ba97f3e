import { expect, it } from "vitest";
import { SILENT } from "../../src/base/log.js";
import type { FromWorker } from "../../src/protocols/laboro/messages.js";
import { Calls } from "../../src/worker/calls.js";
import { Services } from "../../src/worker/services.js";

it("a handler of a former connection that ends late does not end the call that has its number now", async () => {
  const ends: (() => void)[] = [];
  const services = new Services();
  services.set("slow", { handler: () => new Promise((end) => ends.push(() => end("done"))), returnsValue: false });
  const calls = new Calls(services, 60_000, SILENT);
  const sent: FromWorker[] = [];
  const call = { type: "CALL", id: 1, service: "slow", body: new Uint8Array(0), deadline: 60_000 } as const;
  const late: FromWorker[] = [];
  calls.handle(call, 0, (message) => late.push(message));
  calls.forgetAll();
  calls.handle(call, 0, (message) => sent.push(message));
  ends[0]?.();
  await new Promise(setImmediate);
  expect([calls.count, late]).toEqual([1, []]);
  ends[1]?.();
  await calls.whenIdle();
  expect(sent).toMatchObject([{ type: "REPLY", id: 1 }]);
});
