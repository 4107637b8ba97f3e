/** `laboro runner`: what it is told by its command line and by ~/.runexp. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readRunexpConfig } from "../../src/protocols/runexp/runner/config-file.js";
import { LiteralManager, type LiteralManagerOptions } from "../protocols/runexp/literal-manager.js";
import { type CallOptions, laboro, type Said } from "./support/cli.js";

let home: string;
const open: LiteralManager[] = [];
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "laboro-home-"));
});
afterEach(async () => {
  for (const manager of open.splice(0)) await manager.close();
  rmSync(home, { recursive: true, force: true });
});

const JOB = { name: "a", kind: ".sh", script: "echo RES:done; echo oops >&2" };

async function manager(options: Partial<LiteralManagerOptions> = {}): Promise<LiteralManager> {
  const jobs = [JOB];
  const made = await LiteralManager.open({ answer: () => jobs.shift() ?? "FINO", ...options });
  open.push(made);
  return made;
}

const runner = (args: readonly string[], options: CallOptions = {}): Promise<Said> =>
  laboro(["runner", ...args], { ...options, env: { HOME: home, ...options.env } });

describe("laboro runner", () => {
  it("joins, runs, says what it does, and ends", async () => {
    const served = await manager();
    const said = await runner(["1", "-c", `127.0.0.1:${served.port}`, "-h", "vm", "-v"]);
    expect(said.code).toBe(0);
    expect(said.stdout.replace(/^\w{3} \d\d \d\d:\d\d:\d\d /m, "")).toBe(
      "Joining the queue manager on the default working group\n[vm] Running a\nDone!\n",
    );
    expect(said.stderr).toContain("oops\n");
    expect(said.stderr).toContain("laboro: runner: REZULTO name=a status=success size=");
    expect(served.results).toMatchObject([{ host: "vm", name: "a", status: "success" }]);
    expect(served.faults).toEqual([]);
  });

  it("says that it is on hold, and that the hold is over", async () => {
    const answers = ["ATENDI", JOB] as const;
    let asked = 0;
    const served = await manager({ answer: () => answers[asked++] ?? "FINO" });
    const { stdout, code } = await runner(["2", "-c", `127.0.0.1:${served.port}`, "-h", "vm"]);
    expect([code, stdout.replaceAll(/^\w{3} \d\d \d\d:\d\d:\d\d /gm, "").split("\n")]).toEqual([
      0,
      [
        "Joining the queue manager on the default working group",
        "[vm] Runner put on hold: for failing experiments, or until there is more to run",
        "[vm] Manager lifted hold: new jobs coming!",
        "[vm] Running a",
        "Done!",
        "",
      ],
    ]);
  });

  it("fails where the manager does not take a result, and says where that is", async () => {
    const served = await manager({ refuse: "a" });
    const { stdout, stderr, code } = await runner(["1", "-c", `127.0.0.1:${served.port}`, "--data", home]);
    expect([code, stdout.includes("Done!")]).toEqual([1, false]);
    const [, file = ""] = /the manager refused a result; it is kept in (\S+)/.exec(stderr) ?? [];
    expect(readFileSync(file, "utf8")).toMatch(/^runexp summary: success\n[\s\S]*\nRES:done\n$/);
  });

  it("takes what the command line leaves open from ~/.runexp", async () => {
    const served = await manager();
    writeFileSync(join(home, ".runexp"), `# mine\nport=${served.port}\n qmanager=127.0.0.1\nhostname=configured\n`);
    const said = await runner(["2"]);
    expect(said.code).toBe(0);
    expect(said.stdout).toContain(`Using port ${served.port} as specified from config file\n`);
    expect(said.stdout).toContain("Using server address 127.0.0.1 as specified from config file\n");
    expect(said.stdout).toContain("Using hostname configured as specified from config file\n");
    expect(served.results).toMatchObject([{ host: "configured" }]);
  });

  it("lets the command line win", async () => {
    const served = await manager();
    writeFileSync(join(home, ".runexp"), "port=1\nqmanager=nowhere.invalid\nhostname=configured\n");
    const said = await runner(["1", "-c", `127.0.0.1:${served.port}`, "-h", "given"]);
    expect([said.code, served.results[0]?.host]).toEqual([0, "given"]);
  });

  it.each([
    [["0", "-c", "h"], "expected a whole number from 1"],
    [["x", "-c", "h"], "expected"],
    [["1"], "expected the address of the manager: -c HOST:PORT"],
    [["1", "-c", "a:b:c"], "expected HOST or HOST:PORT"],
    [["1", "-c", "h", "-h", "b@d"], "Can't handle this hostname: 'b@d'"],
    [["1", "-c", "h", "-m", "lots"], "expected a size"],
  ])("refuses %j", async (args, text) => {
    expect(await runner(args)).toMatchObject({ code: 2, stderr: expect.stringContaining(text) });
  });

  it("says that nobody is there with exit code 3", async () => {
    const served = await manager();
    const { port } = served;
    await served.close();
    expect(await runner(["1", "-c", `127.0.0.1:${port}`])).toMatchObject({
      code: 3,
      stderr: expect.stringContaining(`no manager at 127.0.0.1:${port}`),
    });
  });

  it("refuses a configuration that it does not understand", () => {
    const file = join(home, ".runexp");
    for (const text of ["port=x", "port=0", "user=me", "nonsense"]) {
      writeFileSync(file, text);
      expect(() => readRunexpConfig(file)).toThrow(/\.runexp: /);
    }
    mkdirSync(join(home, "folder"));
    expect(() => readRunexpConfig(join(home, "folder"))).toThrow(/cannot read/);
    expect(readRunexpConfig(join(home, "none"))).toEqual({});
  });
});
