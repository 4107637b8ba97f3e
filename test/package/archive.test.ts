/** The relocatable archive: run from wherever it lies, with no Node in PATH. Its Node is that of the tests here; scripts/package.mjs takes one from the registry. */
import { execFile, execFileSync, spawn } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { REPOSITORY } from "../support/launched.js";
import { until } from "../support/wait.js";

const call = promisify(execFile);
const TOOLS = ["sh", "cat", "dirname", "mkfifo", "readlink", "rm"];

it.runIf(process.platform === "linux" && process.arch === "x64")(
  "runs a broker, a worker and verbs after it was moved, through a link, in an environment without Node (needs Linux on x64)",
  async () => {
    const dir = fs.mkdtempSync(join(tmpdir(), "laboro-archive-"));
    atEnd(() => fs.rmSync(dir, { recursive: true, force: true }));
    const script = join(REPOSITORY, "scripts", "package.mjs");
    execFileSync(process.execPath, [script, "--node", process.execPath, "--folder", join(dir, "made")]);
    fs.renameSync(join(dir, "made"), join(dir, "moved here"));
    fs.mkdirSync(join(dir, "bin"));
    for (const name of TOOLS) {
      const path = ["/usr/bin", "/bin"].map((folder) => join(folder, name)).find((one) => fs.existsSync(one));
      fs.symlinkSync(path ?? name, join(dir, "bin", name));
    }
    fs.symlinkSync("../moved here/bin/laboro", join(dir, "bin", "laboro"));
    const env = { PATH: join(dir, "bin"), HOME: dir, TMPDIR: dir };
    const laboro = async (...words: string[]): Promise<string> =>
      (await call(join(dir, "bin", "laboro"), words, { env, cwd: dir })).stdout;
    await expect(call("/bin/sh", ["-c", "command -v node"], { env })).rejects.toMatchObject({ code: 127 });
    expect(await laboro("run", "-k", "echo {}", ":::", "a", "b")).toBe("a\nb\n");

    const start = (...words: string[]): void => {
      const child = spawn(join(dir, "bin", "laboro"), words, { env, cwd: dir, stdio: "ignore" });
      const ended = new Promise((resolve) => child.once("exit", resolve));
      atEnd(() => {
        child.kill("SIGTERM");
        return ended;
      });
    };
    start("serve", "--listen", `127.0.0.1:${await freePort()}`);
    await until("the broker has started", () => fs.existsSync(join(dir, ".local/share/laboro/access.json")));
    start("worker");
    await laboro("submit", "echo from $0");
    expect(await laboro("wait", "last")).toContain("1 succeeded");
    expect(await laboro("logs", "last")).toMatch(/^from .*sh\n$/);
  },
  120_000,
);
