import { it } from "vitest";
import { countedRun } from "./calls.js";

it("prints", () => {
  for (const args of [
    ["run", "echo {}", ":::", "a"],
    ["run", "--array", "1-500", "echo {}"],
    ["run", "--array", "1-500", "--", "/bin/true"],
  ]) {
    const run = countedRun(args);
    const c = (f: string, n: string) => run.calls([f, n]);
    console.log(
      args.join(" "),
      JSON.stringify({
        status: run.status,
        asks: c("client/link.js", "sendAndWait"),
        encoded: c("protocols/laboro/codec.js", "encodeMessage"),
        scanned: c("protocols/laboro/codec-scan.js", "scan"),
        commits: c("store/sqlite/engine.js", "commit"),
        syncs: c("node:fs", "fsyncSync") + c("node:fs", "fdatasyncSync") + c("node:fs", "fdatasync"),
        opened: c("node:fs", "openSync") + c("node:fs", "open"),
        modules: run.modules,
        done: c("dispatch/results.js", "onDone"),
        started: c("dispatch/results.js", "onStarted"),
        calls: c("store/sqlite/thread-calls.js", "call"),
        frames: c("protocols/laboro/codec.js", "decodeFrame"),
      }),
    );
  }
}, 120000);
