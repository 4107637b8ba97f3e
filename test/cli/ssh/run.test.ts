/** `laboro run --ssh`, with machines that are reached through a real sshd on loopback. */
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { workerBundle } from "../../../src/base/package.js";
import { NO_MOUNT, smallDisk } from "../../files/scratch.js";
import { openOnce } from "../../support/at-end.js";
import { NO_SSHD, openSshd } from "../../support/sshd.js";
import { until } from "../../support/wait.js";
import { openPlace, type Place } from "../run/place.js";

/** Programs that the shell there needs, and no Node. */
const TOOLS = ["sh", "cat", "mkdir", "chmod", "id", "uname", "df", "awk", "head", "tail", "rm", "mv", "grep", "sleep"];

describe.skipIf(NO_SSHD !== undefined)(`laboro run --ssh${NO_SSHD === undefined ? "" : ` (${NO_SSHD})`}`, () => {
  const site = openOnce(async () => {
    const sshd = await openSshd();
    const home = await sshd.machine("one");
    await sshd.machine("two");
    return { sshd, home };
  });
  const open = (): Place => openPlace({ LABORO_SSH: site().sshd.command });
  const workersOn = (name: string): number[] =>
    site()
      .sshd.processes(name)
      .filter(({ command }) => command.includes("/worker-") && command.includes("--tunnels"))
      .map(({ pid }) => pid);
  /** Each task says that it runs, and ends when the file `go` is there. */
  const WAITING = 'echo {} >>began; until [ -e go ]; do sleep 0.05; done; echo {} >>ended; echo "{} $LABORO_ATTEMPT"';

  it("runs tasks on each machine, through a tunnel, with a copy of the bundle, and leaves no worker behind", async () => {
    const place = open();
    // Each of the two tasks waits for the other one.
    const both = 'echo "$HOME" >>homes; until [ "$(wc -l <homes)" = 2 ]; do sleep 0.05; done; echo "{} $HOME"';
    const said = await place.run("--ssh", "one/1,two/1", "-k", both, ":::", "a", "b");
    const { sshd, home } = site();
    expect(said.code).toBe(0);
    expect(said.stdout.match(/^[ab]/gm)).toEqual(["a", "b"]);
    expect(place.lines("homes").toSorted()).toEqual([home, join(sshd.dir, "two-home")].toSorted());
    const [bundle = ""] = fs.readdirSync(join(home, ".local/share/laboro")).filter((name) => name.endsWith(".cjs"));
    const copy = fs.readFileSync(join(home, ".local/share/laboro", bundle));
    expect(copy.equals(fs.readFileSync(workerBundle().path))).toBe(true);
    expect([...workersOn("one"), ...workersOn("two")]).toEqual([]);
  });

  it("copies a damaged bundle again", async () => {
    const { home } = site();
    const folder = join(home, ".local/share/laboro");
    fs.mkdirSync(folder, { recursive: true });
    const place = open();
    expect(await place.run("--ssh", "one", "echo {}", ":::", "a")).toMatchObject({ code: 0, stdout: "a\n" });
    const bundle = join(folder, fs.readdirSync(folder).find((name) => name.endsWith(".cjs")) ?? "");
    fs.truncateSync(bundle, 1000);
    expect(await place.run("--ssh", "one", "echo {}", ":::", "b")).toMatchObject({ code: 0, stdout: "b\n" });
    expect(fs.statSync(bundle).size).toBe(fs.statSync(workerBundle().path).size);
  });

  it("sends files to a machine and brings back what its tasks made", async () => {
    const place = open();
    fs.writeFileSync(join(place.dir, "a.in"), "one\ntwo\n");
    const sends = ["--ssh", "one", "--send", "{}", "--return", "{.}.out"];
    const said = await place.run(...sends, 'wc -l <{} >{.}.out; echo "$HOME"', ":::", "a.in");
    expect(said).toMatchObject({ code: 0, stdout: `${site().home}\n` });
    expect(place.lines("a.out")).toEqual(["2"]);
  });

  it("needs a machine, and is needed by its options", async () => {
    const place = open();
    const needs = async (...words: string[]) => (await place.run(...words, "echo", ":::", "a")).stderr;
    expect(await needs("--ssh", "")).toContain("--ssh: no machine is named; expected [USER@]HOST");
    expect(await needs("--stay")).toContain("--stay goes with --ssh only");
    expect(await needs("--archive", "x.tar.gz")).toContain("--archive x.tar.gz goes with --ssh only");
  });

  it("runs a task in the home directory of a machine that does not have the directory of the run", async () => {
    const { home } = site();
    const said = await open().run("--ssh", "one", "--dir", "/nowhere/at/all", "pwd");
    expect(said).toMatchObject({ code: 0, stdout: `${home}\n` });
  });

  it("says why a machine cannot be used, and goes on with the others", async () => {
    const { sshd } = site();
    const bare = join(sshd.dir, "bare");
    fs.mkdirSync(bare);
    for (const name of TOOLS) {
      const path = ["/usr/bin", "/bin"].map((folder) => join(folder, name)).find((one) => fs.existsSync(one));
      fs.symlinkSync(path ?? name, join(bare, name));
    }
    await sshd.machine("bare", [`PATH=${bare}`, "SHELL=/bin/false"]);
    await sshd.machine("closed", ["AllowStreamLocalForwarding no"]);
    sshd.alias("dead", "Port 1");
    const port = /Port (\d+)/.exec(fs.readFileSync(join(sshd.dir, "config"), "utf8"))?.[1] ?? "";
    fs.writeFileSync(
      join(sshd.dir, "changed"),
      `[127.0.0.1]:${port} ${fs.readFileSync(join(sshd.dir, "other_key.pub"), "utf8")}`,
    );
    sshd.alias("changed", `Port ${port}`, `UserKnownHostsFile ${join(sshd.dir, "changed")}`);
    sshd.alias("stranger", `Port ${port}`, "UserKnownHostsFile /dev/null");
    sshd.alias("refused", `Port ${port}`, "IdentityFile /dev/null", "PubkeyAuthentication no");
    const hosts = "dead,one,changed,stranger,refused,bare,closed,no-such-host.invalid";
    const { code, stdout, stderr } = await open().run("--ssh", hosts, "echo {}", ":::", "a");
    expect([code, stdout]).toEqual([0, "a\n"]);
    expect(
      stderr
        .split("\n")
        .filter((line) => line.includes("is not used"))
        .sort(),
    ).toEqual([
      expect.stringMatching(/bare is not used: it has no Node 20 or newer; install one there, or .* --archive/),
      expect.stringMatching(
        /changed is not used: its host key has changed; if that is right: ssh-keygen -R changed \(/,
      ),
      expect.stringMatching(/closed is not used: its sshd does not forward a Unix socket/),
      expect.stringMatching(/dead is not used: nothing listens there/),
      expect.stringMatching(/no-such-host.invalid is not used: this host name is not known/),
      expect.stringMatching(/refused is not used: it refuses the login/),
      expect.stringMatching(/stranger is not used: its host key is not known; accept it once: ssh .*stranger \(/),
    ]);
  });

  it("exits with an error if no machine can be used, and runs nothing here", async () => {
    const place = open();
    const said = await place.run("--ssh", "127.0.0.1:1", "touch ran", ":::", "a");
    expect(said).toMatchObject({ code: 1, stderr: expect.stringContaining("LABORO_SSH_FAILED") });
    expect(fs.existsSync(place.file("ran"))).toBe(false);
  });

  it("says that the disk of a machine is full", async (context) => {
    const disk = smallDisk(65_536);
    if (disk === undefined) return context.skip(NO_MOUNT);
    await site().sshd.machine("full", [], disk);
    const { stderr } = await open().run("--ssh", "full", "echo {}", ":::", "a");
    expect(stderr).toMatch(/full is not used: its disk is full: .* are free in/);
  });

  it("refuses a name that ssh would take for an option, and a machine that is named twice", async () => {
    for (const [hosts, why] of [
      ["-oProxyCommand=touch x", /--ssh: expected \[USER@\]HOST/],
      ["a b", /--ssh: expected/],
      ["one/0", /--ssh: expected/],
      ["one,one/2", /one is named twice/],
      ["@/no/such/file", /the file \/no\/such\/file cannot be read: there is no such file/],
    ] as const) {
      const said = await open().run(`--ssh=${hosts}`, "echo {}", ":::", "a");
      expect([said.code, said.stderr]).toEqual([2, expect.stringMatching(why)]);
    }
  });

  it("loses nothing and runs nothing twice when the connection is cut; no token is in an argument", async () => {
    const place = open();
    const { said, output } = place.begin(["run", "--ssh", "one/2", "-k", WAITING, ":::", "a", "b", "c"]);
    await until("two tasks run", () => place.lines("began").length === 2);
    const tokens = JSON.parse(fs.readFileSync(place.file(".laboro/tokens.json"), "utf8")) as { token: string }[];
    const shown = site()
      .sshd.processes("one")
      .map(({ command }) => command)
      .join("\n");
    expect(tokens.filter(({ token }) => shown.includes(token))).toEqual([]);
    const [before] = workersOn("one");
    site().sshd.cut("one");
    await until("it is back", () => output().includes("one is back"));
    fs.writeFileSync(place.file("go"), "");
    const { code, stdout, stderr } = await said;
    console.log(`connection cut: lost: ${3 - place.lines("ended").length}, runs: ${place.lines("began").length}`);
    expect([code, stdout]).toEqual([0, "a 1\nb 1\nc 1\n"]);
    expect(place.lines("began")).toHaveLength(3);
    expect(stderr).toMatch(/laboro: one: .*; trying again\nlaboro: one is back/);
    expect([before === undefined, workersOn("one")]).toEqual([false, []]);
  });

  it("runs the tasks of a killed machine again when it is back", async () => {
    const place = open();
    const { said, output } = place.begin(["run", "--ssh", "two/2", "-k", WAITING, ":::", "a", "b", "c"]);
    await until(
      () => `two tasks run: ${output()}`,
      () => place.lines("began").length === 2,
    );
    site().sshd.kill("two");
    fs.writeFileSync(place.file("go"), "");
    const { code, stdout } = await said;
    console.log(`machine killed: lost: ${3 - new Set(place.lines("ended")).size}`);
    expect([code, stdout]).toEqual([0, "a 2\nb 2\nc 1\n"]);
    expect(workersOn("two")).toEqual([]);
  });

  it("ends a worker whose connection was cut when the run ends", async () => {
    const place = open();
    const { said, output } = place.begin(["run", "--ssh", "one/2", WAITING, ":::", "a"]);
    await until(
      () => `it runs: ${output()}`,
      () => place.lines("began").length === 1,
    );
    fs.writeFileSync(place.file("go"), "");
    await until("it has ended", () => place.lines("ended").length === 1);
    site().sshd.cut("one");
    expect(await said).toMatchObject({ code: 0, stdout: "a 1\n" });
    expect(workersOn("one")).toEqual([]);
  });

  it("leaves the workers running with --stay, and finds them again", async () => {
    const place = open();
    expect((await place.run("--ssh", "one", "--stay", "echo {}", ":::", "a")).code).toBe(0);
    const [left] = workersOn("one");
    expect(left).toBeDefined();
    const { said } = place.begin(["run", "--ssh", "one", WAITING, ":::", "b"]);
    await until("it runs", () => place.lines("began").length === 1);
    expect(workersOn("one")).toEqual([left]);
    fs.writeFileSync(place.file("go"), "");
    expect(await said).toMatchObject({ code: 0, stdout: "b 1\n" });
    expect(workersOn("one")).toEqual([]);
  });
});
