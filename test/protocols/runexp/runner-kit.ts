/** A laboro runner in this process, with a literal manager. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Runner, type RunnerOptions, startRunner } from "../../../src/protocols/runexp/runner/index.js";
import { atEnd } from "../../support/at-end.js";
import { type LiteralJob, LiteralManager, type LiteralManagerOptions } from "./literal-manager.js";

export function newDir(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-runner-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export function start(port: number, options: Partial<RunnerOptions> & { readonly dir: string }): Runner {
  const runner = startRunner({ ...{ host: "vm", threads: 1, manager: { host: "127.0.0.1", port } }, ...options });
  atEnd(() => {
    runner.stop(true);
    return runner.ended;
  });
  return runner;
}

export async function manager(options: LiteralManagerOptions, port?: number): Promise<LiteralManager> {
  const made = await LiteralManager.open(options, port);
  atEnd(() => made.close());
  return made;
}

/** These jobs, and then the end. */
export function list(jobs: readonly LiteralJob[]): LiteralManagerOptions {
  const left = [...jobs];
  return { answer: () => left.shift() ?? "FINO" };
}

export const job = (name: string, script: string, kind = ".sh"): LiteralJob => ({ name, kind, script });

/** The text of a result without what differs each time. */
export const normalized = (text: string): string =>
  text
    .replaceAll(/\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \S+ \d{4}/g, "DATE")
    .replaceAll(/-- \[[^\]]*\] Running/g, "-- [HOST] Running")
    .replaceAll(/\/\S*\/runexp_\w+\.(sh|m)/g, "FILE")
    .replaceAll(/\/\S*\/matlabproxy_\w+\.sh/g, "PROXY");
