import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import { ThreadCalls } from "../../../src/store/sqlite/thread-calls.js";

const thread = (body: string): URL => new URL(`data:text/javascript,${encodeURIComponent(body)}`);
const IMPORT = 'import { parentPort } from "node:worker_threads";';

it.each([
  ["throws", `${IMPORT} parentPort.on("message", () => { throw new Error("out of luck"); });`, /out of luck/],
  ["exits", `${IMPORT} parentPort.on("message", () => process.exit(3));`, /ended \(3\)/],
])("refuses what was waiting and what comes later when the thread %s", async (_, body, why) => {
  const calls = new ThreadCalls(() => {}, thread(body));
  const waiting = [calls.call("open", { dir: "/nowhere", now: 1 }), calls.call("job", { id: JobId(1) })];
  for (const call of waiting) {
    await expect(call).rejects.toMatchObject({ code: "LABORO_STORE_FAILED", message: expect.stringMatching(why) });
  }
  await expect(calls.call("job", { id: JobId(1) })).rejects.toMatchObject({ code: "LABORO_STORE_FAILED" });
  await calls.end();
});
