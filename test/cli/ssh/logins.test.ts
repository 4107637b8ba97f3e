/** How `laboro run --ssh` logs in to a machine, and what it uses and leaves there. */
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd, openOnce } from "../../support/at-end.js";
import { NO_SSHD, openSshd } from "../../support/sshd.js";
import { until } from "../../support/wait.js";
import { openPlace, type Place } from "../run/place.js";

/** Programs that the shell there needs, and no Node. */
const TOOLS = ["sh", "cat", "mkdir", "chmod", "id", "uname", "df", "awk", "head", "tail", "rm", "mv", "grep", "sleep"];
const MORE_TOOLS = ["gzip", "tar", "ls", "nohup", "mkfifo"];

describe.skipIf(NO_SSHD !== undefined)(`logins of --ssh${NO_SSHD === undefined ? "" : ` (${NO_SSHD})`}`, () => {
  const site = openOnce(async () => {
    const sshd = await openSshd();
    const home = await sshd.machine("one");
    const bin = join(sshd.dir, "bin-without-node");
    fs.mkdirSync(bin);
    for (const name of [...TOOLS, ...MORE_TOOLS]) {
      const path = ["/usr/bin", "/bin"].map((folder) => join(folder, name)).find((file) => fs.existsSync(file));
      fs.symlinkSync(path ?? name, join(bin, name));
    }
    return { sshd, home, bin };
  });
  const open = (): Place => openPlace({ LABORO_SSH: site().sshd.command });
  const portOf = (name: string): string =>
    new RegExp(`Host ${name}\\n[\\s\\S]*?Port (\\d+)`).exec(
      fs.readFileSync(join(site().sshd.dir, "config"), "utf8"),
    )?.[1] ?? "";
  /** Logins that sshd accepted. */
  const logins = (name: string): number =>
    fs.readFileSync(join(site().sshd.dir, `${name}.log`), "utf8").match(/Accepted publickey/g)?.length ?? 0;
  const workersOn = (name: string): number[] =>
    site()
      .sshd.processes(name)
      .filter(({ command }) => command.includes("/worker-") && command.includes("--tunnels"))
      .map(({ pid }) => pid);
  /** Ends when the file `go` is there. */
  const WAITING = 'echo {} >>began; until [ -e go ]; do sleep 0.05; done; echo "{} $LABORO_ATTEMPT"';

  it("logs in once for each run, and copies the bundle once", async () => {
    const { home } = site();
    const copies = (): number[] =>
      fs
        .readdirSync(join(home, ".local/share/laboro"))
        .filter((name) => name.endsWith(".cjs"))
        .map((name) => fs.statSync(join(home, ".local/share/laboro", name)).ino);
    const before = logins("one");
    expect(await open().run("--ssh", "one", "echo {}", ":::", "a")).toMatchObject({ code: 0, stdout: "a\n" });
    const first = copies();
    expect(await open().run("--ssh", "one", "echo {}", ":::", "b")).toMatchObject({ code: 0, stdout: "b\n" });
    expect([logins("one") - before, first.length, copies()]).toEqual([2, 1, first]);
  });

  it("takes machines from a file, with a user and a port, beside this machine, with the cores of each", async () => {
    const place = open();
    const user = execFileSync("id", ["-un"], { encoding: "utf8" }).trim();
    fs.writeFileSync(place.file("hosts"), `# the only one\n${user}@one:${portOf("one")}\n`);
    const tasks = 2 * availableParallelism();
    // Each task waits until all of them run.
    const all = `echo "$HOME" >>homes; until [ "$(wc -l <homes)" = ${tasks} ]; do sleep 0.05; done; echo {}`;
    const entries = Array.from({ length: tasks }, (_, i) => String(i));
    const said = await place.run("--ssh", "@hosts,:", "-k", all, ":::", ...entries);
    expect(said).toMatchObject({ code: 0, stdout: `${entries.join("\n")}\n` });
    expect(new Set(place.lines("homes"))).toEqual(new Set([site().home, place.dir]));
  });

  it("uses the connection that the user has open (ControlMaster), and leaves it open", async () => {
    const { sshd } = site();
    const socket = join(sshd.dir, "own");
    sshd.alias("mine", `Port ${portOf("one")}`, `ControlPath ${socket}`);
    const [file = "", ...own] = sshd.command.split(" ");
    const call = (...args: string[]): string => execFileSync(file, [...own, ...args], { encoding: "utf8" });
    call("-M", "-N", "-f", "mine");
    atEnd(() => call("-O", "exit", "mine"));
    const before = logins("one");
    expect(await open().run("--ssh", "mine", "echo {}", ":::", "a")).toMatchObject({ code: 0, stdout: "a\n" });
    expect(logins("one") - before).toBe(0);
    expect(() => call("-O", "check", "mine")).not.toThrow();
    expect(workersOn("one")).toEqual([]);
  });

  it("tries again when sshd drops logins because there are too many at once (MaxStartups)", async () => {
    const { sshd } = site();
    await sshd.machine("busy", ["MaxStartups 1:100:1", "LoginGraceTime 20"]);
    for (const name of ["busy2", "busy3", "busy4"]) sshd.alias(name, `Port ${portOf("busy")}`);
    const place = open();
    const all = 'echo x >>began; until [ "$(wc -l <began)" = 4 ]; do sleep 0.05; done; echo {}';
    const hosts = "busy/1,busy2/1,busy3/1,busy4/1";
    const said = await place.run("--ssh", hosts, "-k", all, ":::", "a", "b", "c", "d");
    expect(said).toMatchObject({ code: 0, stdout: "a\nb\nc\nd\n" });
    expect(said.stderr).not.toContain("is not used");
  });

  it("finds a Node that is not in the PATH", async () => {
    const { sshd, bin } = site();
    const home = await sshd.machine("nvm", [`PATH=${bin}`, "SHELL=/bin/false"]);
    const folder = join(home, ".nvm/versions/node/v20.0.0/bin");
    fs.mkdirSync(folder, { recursive: true });
    fs.symlinkSync(process.execPath, join(folder, "node"));
    expect(await open().run("--ssh", "nvm", "echo {}", ":::", "a")).toMatchObject({ code: 0, stdout: "a\n" });
  });

  it("unpacks the archive once on a machine without Node", async () => {
    const { sshd, bin } = site();
    const home = await sshd.machine("empty", [`PATH=${bin}`, "SHELL=/bin/false"]);
    const place = open();
    // The part of the archive that a worker over ssh needs: its Node, where scripts/package.mjs puts it.
    fs.mkdirSync(place.file("laboro-0-linux-x64/node/bin"), { recursive: true });
    fs.symlinkSync(process.execPath, place.file("laboro-0-linux-x64/node/bin/node"));
    execFileSync("tar", ["-I", "gzip -1", "-cf", "laboro.tar.gz", "laboro-0-linux-x64"], { cwd: place.dir });
    const run = (): Promise<unknown> =>
      place.run("--ssh", "empty", "--archive", "laboro.tar.gz", "echo {}", ":::", "a");
    expect(await run()).toMatchObject({ code: 0, stdout: "a\n" });
    const unpacked = (): (string | number)[][] =>
      fs
        .readdirSync(join(home, ".local/share/laboro"))
        .filter((name) => name.startsWith("node-"))
        .map((name) => [name, fs.statSync(join(home, ".local/share/laboro", name)).ino]);
    const first = unpacked();
    expect(first).toHaveLength(1);
    expect(await run()).toMatchObject({ code: 0, stdout: "a\n" });
    expect(unpacked()).toEqual(first);
  });

  it("finds its workers and their results again after kill -9 of the run", async () => {
    const place = open();
    const words = ["run", "--ssh", "one/2", "-k", WAITING, ":::", "a", "b", "c"];
    const killed = place.begin(words);
    await until(
      () => `two tasks run: ${killed.output()}`,
      () => place.lines("began").length === 2,
    );
    const [before] = workersOn("one");
    killed.child.kill("SIGKILL");
    await killed.said;
    fs.writeFileSync(place.file("go"), "");
    const again = await place.begin(words).said;
    console.log(`run killed: lost: ${3 - new Set(place.lines("began")).size}, runs: ${place.lines("began").length}`);
    expect([again.code, again.stdout]).toEqual([0, "a 1\nb 1\nc 1\n"]);
    expect(place.lines("began")).toHaveLength(3);
    expect([before === undefined, workersOn("one")]).toEqual([false, []]);
  });
});
