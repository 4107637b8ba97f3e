import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCliBroker } from "./support/cli.js";

function folder(dir: string, scripts: Readonly<Record<string, string>>): string {
  const base = join(dir, "study");
  mkdirSync(join(base, "runs", "sub"), { recursive: true });
  for (const [name, text] of Object.entries(scripts)) writeFileSync(join(base, "runs", name), text);
  return base;
}

describe("laboro experiments --broker", () => {
  it("runs the scripts at the broker's workers and writes the results", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "node1" });
    const base = folder(setup.dir, {
      "good.sh": "echo RES:done; echo not this >&2\n",
      "sub/bad.sh": "echo RES: failed\nexit 3\n",
    });
    const { code, stdout, stderr } = await setup.laboro(["experiments", base, "--broker", "--sort", "-q", "-a"]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^There are 2 jobs here\.\nI did not do anything yet\.\nAll jobs were spawned\.\n/);
    expect(stdout).toContain("node1: finished good with success");
    expect(stdout).toMatch(/Done!\n$/);
    expect(stderr).toContain("1 of 2 experiments failed");
    expect(readdirSync(join(base, "outputs")).sort()).toEqual(["good.res", "runexp.am", "sub"]);
    expect(readFileSync(join(base, "outputs", "sub", "bad.res"), "utf8")).toMatch(
      /^runexp summary: failure\n\n.* -- \[node1\] Running sub\/bad\n> bash 'sub\/bad'\n.* -- Finished running\nProgram exited with status 768\nProgram output follows\n\nRES: failed\n$/,
    );
    expect(readFileSync(join(base, "outputs", "good.res"), "utf8")).toMatch(/\n\nRES:done\n$/);
    expect(readFileSync(join(base, "outputs", "runexp.am"), "utf8").split("\n")).toHaveLength(4);
  });

  it("has bash run what the first line says otherwise of, and MATLAB what is its", async () => {
    const setup = await openCliBroker();
    const bin = join(setup.dir, "bin");
    mkdirSync(bin);
    // Stands for the program, which is not to be had here: says what it was to run, and fails as MATLAB would after an error.
    writeFileSync(join(bin, "matlab"), '#!/bin/sh\nfor word; do echo "[$word]"; done\necho RES: failed\nexit 1\n', {
      mode: 0o755,
    });
    const before = process.env.PATH;
    process.env.PATH = `${bin}:${before}`;
    try {
      setup.worker();
      const base = folder(setup.dir, {
        "plain.sh": "a=(1 2); [[ $a = 1 ]] && echo RES:done\n",
        "other.sh": "#!/bin/sh\na=(1 2); echo RES:line $LINENO\n",
        "bad.m": "fprintf('RES: failed\\n')\n",
      });
      const { stderr } = await setup.laboro(["experiments", base, "--broker", "-q"]);
      expect(stderr).toContain("1 of 3 experiments failed");
      const res = (name: string): string => readFileSync(join(base, "outputs", `${name}.res`), "utf8");
      expect(res("plain")).toMatch(/^runexp summary: success\n/);
      expect(res("other")).toMatch(/^runexp summary: success\n.*\n\nRES:line 2\n$/s);
      expect(res("bad")).toMatch(
        /^runexp summary: failure\n.*\[try, addpath\('[^']+'\), laboro_\d+, catch e, .*exit\(1\), end, quit\]/s,
      );
    } finally {
      process.env.PATH = before;
    }
  });

  it("runs again what failed, skips what is done, and fetches what was done while nobody looked", async () => {
    const setup = await openCliBroker();
    const base = folder(setup.dir, { "a.sh": "echo RES:done\n", "b.sh": "echo RES:failed\n" });
    setup.worker();
    expect((await setup.laboro(["experiments", base, "--broker", "-q"])).code).toBe(1);
    expect((await setup.client.jobs()).jobs).toHaveLength(2);
    const again = await setup.laboro(["experiments", base, "--broker", "-q"]);
    expect(again.stdout).toContain("I have already run 1 job. I will skip them.");
    expect((await setup.client.jobs()).jobs).toHaveLength(3);
    rmSync(join(base, "outputs", "a.res"));
    expect((await setup.laboro(["experiments", base, "--broker", "-q"])).code).toBe(1);
    // The result of a is fetched from the broker once more, b is run again.
    expect((await setup.client.jobs()).jobs).toHaveLength(4);
    expect(readFileSync(join(base, "outputs", "a.res"), "utf8")).toContain("RES:done");
  });
});
