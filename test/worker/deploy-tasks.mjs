/** What deploy.test.ts does inline, for threads. */
import { appendFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { defineTask } from "../../dist/entries/task.js";

export const mail = defineTask("mail").handler(async ({ to, calls, ms }, { signal }) => {
  appendFileSync(calls, `${to}\n`);
  await pause(ms, undefined, { signal });
  return `sent to ${to}`;
});
