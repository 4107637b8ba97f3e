/** `laboro worker` in a process of its own, as it is started in production, at the broker of a setup. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { atEnd } from "../support/at-end.js";
import { LABORO, Launched } from "../support/launched.js";
import type { TestBroker } from "../support/test-broker.js";

export function launchWorker({ dir, broker }: TestBroker, name: string, ...options: string[]): Launched {
  const file = join(dir, "join");
  writeFileSync(file, broker.url.replace("://", `://${broker.token}@`), { mode: 0o600 });
  const args = [LABORO, "worker", "--join", `@${file}`, "--dir", join(dir, name), "--name", name, ...options];
  const worker = new Launched(name, args, { env: { PATH: process.env.PATH, HOME: dir } });
  atEnd(() => worker.end("SIGKILL"));
  return worker;
}
