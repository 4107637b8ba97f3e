/** What deploy.test.ts does inline, for threads. */
import { appendFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { defineTask } from "../../dist/entries/task.js";

export const mail = defineTask("mail").handler(async ({ to, calls }) => {
  appendFileSync(calls, `${to}\n`);
  await pause(1 + (to % 7));
  return `sent to ${to}`;
});
