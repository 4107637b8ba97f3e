/** `laboro experiments`, with its runners, as processes. */
import * as fs from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { hasStrace, STRACE } from "../budgets/calls.js";
import { LiteralRunner } from "../protocols/runexp/peers.js";
import { freePort } from "../support/free-port.js";
import { LABORO, type Launched } from "../support/launched.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";
import { laboro } from "./support/cli.js";

const newSite = sites();
const LONG = 60_000;

interface Study {
  readonly site: Site;
  readonly dir: string;
  start(...args: readonly string[]): Launched;
  runner(name: string, port: number, ...args: readonly string[]): Launched;
  outputs(): string[];
}

function study(scripts: Readonly<Record<string, string>>): Study {
  const site = newSite();
  const dir = site.path("study");
  for (const [path, text] of Object.entries(scripts)) {
    fs.mkdirSync(join(dir, "runs", path, ".."), { recursive: true });
    fs.writeFileSync(join(dir, "runs", path), text);
  }
  return {
    site,
    dir,
    start: (...args) => site.launch("experiments", [LABORO, "experiments", dir, ...args]),
    runner: (name, port, ...args) =>
      site.launch(name, [
        ...[LABORO, "runner", ...(args.length > 0 ? args : ["2"]), "-c", `127.0.0.1:${port}`, "-h", name],
        ...["--data", site.path(`data-${name}`)],
      ]),
    outputs: () => {
      const outputs = join(dir, "outputs");
      return fs.readdirSync(outputs).sort();
    },
  };
}

const ended = (launched: Launched, what: string): Promise<unknown> =>
  until(
    () => `${what} ends; it said ${launched.said}`,
    () => launched.over,
    LONG,
  );

/** Lines of standard output and error, without the progress line and what differs each time. */
const lines = (text: string): string[] =>
  text
    .replaceAll(/\[ *[\d.]+%\] \d+\/\d+\r/g, "")
    .replaceAll(/^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d /gm, "")
    .split("\n")
    .filter((line) => line !== "");

/** The system calls of a trace in the order of their ends, without the numbers of processes. */
function completedCalls(trace: string): string[] {
  const begun = new Map<string, string>();
  const calls: string[] = [];
  for (const line of trace.split("\n")) {
    const [, pid = "", text = ""] = /^(\d+) +(.*)$/.exec(line) ?? [];
    if (text.endsWith("<unfinished ...>")) begun.set(pid, text);
    else if (text.startsWith("<... ")) calls.push(begun.get(pid) ?? "");
    else calls.push(text);
  }
  return calls;
}

describe("laboro experiments", () => {
  it(
    "runs at this machine what a lost runner had, although the local runner had to go before",
    async () => {
      const { site, dir, start, outputs } = study({});
      const go = site.path("go");
      for (const name of ["a", "b", "c"]) {
        fs.mkdirSync(join(dir, "runs"), { recursive: true });
        fs.writeFileSync(join(dir, "runs", `${name}.sh`), `while [ ! -e '${go}' ]; do sleep 0.05; done; echo RES:done`);
      }
      const port = await freePort();
      const run = start("-p", String(port), "--local", "2", "-q", "-a");
      await until("the listener is open", () => reaches(port), LONG);
      const doomed = await LiteralRunner.join(port, "doomed");
      const { name } = await doomed.takes();
      fs.writeFileSync(go, "");
      await until("the others have ended", () => (run.said.match(/finished/g) ?? []).length === 2, LONG);
      doomed.cut();
      await ended(run, "the run");
      expect(run.exitCode).toBe(0);
      expect(run.said).toContain("[doomed] is gone: its experiment waits for another runner");
      expect(run.said).toContain(`finished ${name} with success`);
      expect(outputs()).toEqual(["a.res", "b.res", "c.res", "runexp.am"]);
    },
    LONG,
  );

  it.skipIf(!hasStrace)(
    "has a result on disk before its runner hears RICEVIS: written, synced, renamed, its folder synced (needs strace)",
    async () => {
      const { site, dir } = study({ "a.sh": "echo RES:done\n" });
      const trace = site.path("trace");
      const calls = "trace=write,writev,pwrite64,sendto,sendmsg,fsync,fdatasync,rename,renameat,renameat2";
      const port = await freePort();
      const run = site.launch("experiments", [LABORO, "experiments", dir, "-p", String(port), "-q"], {
        prefix: [STRACE, "-f", "-q", "-y", "-s", "100", "-e", calls, "-o", trace],
      });
      await until("the listener is open", () => run.over || reaches(port), LONG);
      const runner = await LiteralRunner.join(port, "vm");
      await runner.runs(await runner.takes());
      runner.cut();
      await ended(run, "the run");
      const steps = completedCalls(fs.readFileSync(trace, "utf8"));
      const outputs = join(dir, "outputs");
      const at = (step: RegExp, from = 0): number => steps.findIndex((call, i) => i >= from && step.test(call));
      const renamed = at(new RegExp(`^rename.*${outputs}/a\\.res"`));
      expect(renamed).toBeGreaterThan(0);
      const [, draft = ""] = /"([^"]*)"/.exec(steps[renamed] ?? "") ?? [];
      const written = at(new RegExp(`^p?write\\w*\\(\\d+<${draft}>`));
      const synced = at(new RegExp(`^f(data)?sync\\(\\d+<${draft}>`));
      const folder = at(new RegExp(`^fsync\\(\\d+<${outputs}>`), renamed);
      const told = at(/^(write|send)\w*\(.*RICEVIS/);
      const order = [written, synced, renamed, folder, told];
      expect(order.filter((place) => place < 0)).toEqual([]);
      expect(order).toEqual([...order].sort((a, b) => a - b));
    },
    LONG,
  );

  it(
    "with --ban gives nothing more to a runner that fails at most of it",
    async () => {
      const names = Array.from({ length: 14 }, (_, i) => `e${i}.sh`);
      const { start, outputs } = study(Object.fromEntries(names.map((name) => [name, "echo RES:failed\n"])));
      const run = start("-p", "0", "--local", "1", "--ban", "-q");
      await until("it is said", () => run.over || run.said.includes("is banned"), LONG);
      expect(run.said).toContain("is banned: only 0 of 10 experiments succeeded");
      // It may have had one or two more by then.
      expect(run.over).toBe(false);
      expect(outputs().filter((name) => name.endsWith(".res")).length).toBeLessThan(names.length);
    },
    LONG,
  );

  it(
    "takes its scripts from where it is told and puts the results where it is told",
    async () => {
      const { dir } = study({ "a.sh": "echo RES:failed here\n" });
      fs.mkdirSync(join(dir, "scripts"));
      for (const name of ["x", "y"]) fs.writeFileSync(join(dir, "scripts", `${name}.sh`), "echo RES:done\n");
      const folders = ["-r", "scripts", "-o", "results", "--sort"];
      const { stdout, code } = await laboro(["experiments", dir, ...folders, "-p", "0", "--local", "1", "--shownames"]);
      expect(code).toBe(0);
      expect(stdout.match(/(?<=: )[xy]$/gm)).toEqual(["x", "y"]);
      expect(fs.readdirSync(join(dir, "results")).sort()).toEqual(["runexp.am", "x.res", "y.res"]);
      expect(fs.existsSync(join(dir, "outputs"))).toBe(false);
    },
    LONG,
  );

  it(
    "runs a folder on this machine, and skips what is done when it is started again",
    async () => {
      const { dir, start, outputs } = study({
        "ok.sh": "echo hello; echo RES:done",
        "bad.sh": "echo RES:failed",
        "sub/deep.sh": "echo RES:done",
      });
      const first = start("-p", "0", "--local", "2");
      await ended(first, "the first run");
      expect(first.exitCode).toBe(1);
      expect(first.said).toMatch(/\[RESULT\] \S+: finished bad with failure\n/);
      expect(lines(first.said).filter((line) => !/^laboro: |\[RESULT\]/.test(line))).toEqual([
        "There are 3 jobs here.",
        "I did not do anything yet.",
        "All jobs were spawned.",
        "Waiting for clients to disconnect.",
        "Done!",
      ]);
      expect(first.said).toContain("[100.0%] 3/3\r");
      expect(outputs()).toEqual(["bad.res", "ok.res", "runexp.am", "sub"]);
      expect(fs.readFileSync(join(dir, "outputs", "ok.res"), "utf8")).toMatch(
        /^runexp summary: success\n\n.* -- \[.*\] Running ok\n> bash '.*'\n.* -- Finished running\nProgram exited with status 0\nProgram output follows\n\nhello\nRES:done\n$/,
      );
      fs.writeFileSync(join(dir, "runs", "bad.sh"), "echo RES:done");
      const second = start("-p", "0", "--local", "1", "--shownames", "-a");
      await ended(second, "the second run");
      expect(second.exitCode).toBe(0);
      expect(lines(second.said).slice(0, 3)).toEqual([
        "There are 3 jobs here.",
        "I have already run 2 jobs. I will skip them.",
        "I now have 1 job to run.",
      ]);
      expect(second.said).toMatch(/\[100\.0%\] \S+: bad\n/);
      expect(second.said).toMatch(/\[RESULT\] \S+: finished bad with success\n/);
      const third = start();
      await ended(third, "the third run");
      expect(lines(third.said)).toEqual([
        "There are 3 jobs here.",
        "I have already run everything. Nothing else to do here.",
      ]);
      expect(third.exitCode).toBe(0);
    },
    LONG,
  );

  it("prints what is left, in the order of the paths, and runs nothing", async () => {
    const { dir, start } = study({ "b.sh": "", "a.m": "", "s/c.sh": "" });
    const printed = start("--print", "--sort");
    await ended(printed, "it");
    expect(lines(printed.said).slice(2)).toEqual(["a.m", "b.sh", "s/c.sh"].map((path) => `${dir}/runs/${path}`));
    expect(fs.existsSync(join(dir, "outputs"))).toBe(false);
    expect(printed.exitCode).toBe(0);
  });

  it(
    "warns where two scripts have one name, and keeps both results",
    async () => {
      const { start, outputs } = study({ "x.sh": "echo RES:done", "x.m": "x" });
      const run = start("-p", "0", "--local", "1");
      await ended(run, "it");
      expect(run.said).toContain("x.sh and x.m have one name: the second writes x.m.res");
      expect(outputs()).toEqual(["runexp.am", "x.m.res", "x.res"]);
    },
    LONG,
  );

  it.each([
    [["nowhere"], 2, "there is no folder of scripts"],
    [[".", "--listen", "0.0.0.0"], 2, "--insecure"],
    [[".", "-g", "a b"], 2, "without blanks"],
    [[".", "-p", "99999"], 2, "port"],
  ])("refuses %j", async (args, code, text) => {
    const { dir } = study({ "a.sh": "" });
    const given = args[0] === "." ? [dir, ...args.slice(1)] : [join(dir, args[0] ?? "")];
    const said = await laboro(["experiments", ...given]);
    expect([said.code, said.stderr]).toEqual([code, expect.stringContaining(text)]);
  });

  it("says that its port is taken, and ends", async () => {
    const { dir } = study({ "a.sh": "" });
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
    const address = taken.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const said = await laboro(["experiments", dir, "-p", String(port), "--local", "1"]);
    taken.close();
    expect([said.code, said.stderr]).toEqual([2, expect.stringContaining("something else listens there")]);
  });

  it("refuses a folder without scripts", async () => {
    const { dir } = study({ "readme.txt": "" });
    expect(await laboro(["experiments", dir])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("There are no jobs here."),
    });
  });

  it(
    "lets only runners of its group in",
    async () => {
      const { start, runner } = study({ "a.sh": "echo RES:done" });
      const port = await freePort();
      const run = start("-p", String(port), "-g", "mine");
      await run.says("Starting working group 'mine'. Use -g 'mine' with clients to join this group");
      const stranger = runner("stranger", port);
      await ended(stranger, "the stranger");
      expect([stranger.exitCode, stranger.said]).toEqual([1, expect.stringContaining("the manager's group is mine")]);
      const member = runner("member", port, "1", "-g", "mine");
      await ended(member, "the member");
      expect(member.said).toContain("Joining the queue manager on the working group 'mine'\n");
      expect(member.said).toMatch(/ \[member\] Running a\n/);
      expect([member.exitCode, member.said.trim().endsWith("Done!")]).toEqual([0, true]);
      await ended(run, "the manager");
      expect(run.exitCode).toBe(0);
    },
    LONG,
  );

  it(
    "loses nothing to a runner that is killed, one that is cut and one that talks nonsense",
    async () => {
      const count = 60;
      const script = "sleep 0.02; echo RES:done";
      const scripts = Object.fromEntries(Array.from({ length: count }, (_, i) => [`e${i}.sh`, script]));
      const { site, dir, start, runner, outputs } = study(scripts);
      const port = await freePort();
      const run = start("-p", String(port), "-q", "-a");
      await until("the listener is open", () => reaches(port), LONG);
      const cutter = await proxy(port);
      site.atEnd(() => cutter.close());
      const doomed = runner("doomed", port);
      const cut = runner("cut", cutter.port);
      await until("some have ended", () => (run.said.match(/finished/g) ?? []).length >= 5, LONG);
      const mad = await LiteralRunner.join(port, "mad");
      const taken = await mad.takes();
      mad.say("REZULTO ../../../etc/x success 3");
      doomed.signal("SIGKILL");
      cutter.cut();
      await mad.isClosed();
      await runner("last", port).says("Joining", LONG);
      await until("more have ended", () => (run.said.match(/finished/g) ?? []).length >= 30, LONG);
      cutter.cut();
      await ended(run, "the manager");
      await ended(cut, "the runner that was cut");
      expect(run.exitCode).toBe(0);
      expect(outputs()).toHaveLength(count + 1);
      const finished = lines(run.said).filter((line) => line.includes("[RESULT]"));
      expect(new Set(finished.map((line) => /finished (\S+)/.exec(line)?.[1])).size).toBe(count);
      expect(finished).toHaveLength(count);
      expect(finished.some((line) => line.includes(`finished ${taken.name} with`))).toBe(true);
      expect(run.said).toContain("mad is disconnected");
      expect(fs.readFileSync(join(dir, "outputs", "runexp.am"), "utf8").split("\n")).toHaveLength(2 * count);
    },
    2 * LONG,
  );

  it(
    "acknowledges a result that an earlier manager recorded before it died, and keeps the first",
    async () => {
      const { dir, start } = study({ "a.sh": "echo RES:done first", "b.sh": "echo RES:done" });
      fs.renameSync(join(dir, "runs", "b.sh"), join(dir, "b.sh"));
      const first = start("-p", "0", "--local", "1", "-q");
      await ended(first, "the first manager");
      fs.renameSync(join(dir, "b.sh"), join(dir, "runs", "b.sh"));
      const port = await freePort();
      const second = start("-p", String(port), "-q", "-a");
      await until("the listener is open", () => reaches(port), LONG);
      const late = await LiteralRunner.join(port, "late");
      await late.delivers("a", "success", "RES:done second\n");
      const { name } = await late.takes();
      expect(name).toBe("b");
      await late.delivers("b", "success", "RES:done\n");
      late.cut();
      await ended(second, "the second manager");
      expect(second.exitCode).toBe(0);
      expect(fs.readFileSync(join(dir, "outputs", "a.res"), "utf8")).toContain("first");
    },
    LONG,
  );

  it(
    "killed and started again, goes on where it was, and what ran meanwhile is not run twice",
    async () => {
      const count = 24;
      const site0 = newSite();
      const counted = site0.path("count");
      const { start, runner, outputs } = study(
        Object.fromEntries(
          Array.from({ length: count }, (_, i) => [`e${i}.sh`, `echo e${i} >>${counted}; sleep 0.3; echo RES:done`]),
        ),
      );
      const port = await freePort();
      const first = start("-p", String(port), "-q", "-a");
      await until("the listener is open", () => reaches(port), LONG);
      const worker = runner("steady", port, "3");
      await until("some have ended", () => (first.said.match(/finished/g) ?? []).length >= 6, LONG);
      first.signal("SIGKILL");
      await ended(first, "the first manager");
      await until("what ran meanwhile has ended", () => worker.said.includes("the manager disconnected"), LONG);
      const second = start("-p", String(port), "-q", "-a");
      await ended(second, "the second manager");
      expect([second.exitCode, second.said]).toEqual([
        0,
        expect.stringMatching(/I have already run \d+ jobs?\. I will skip them\./),
      ]);
      await ended(worker, "the runner");
      expect(worker.exitCode).toBe(0);
      expect(outputs()).toHaveLength(count + 1);
      const runs = fs.readFileSync(counted, "utf8").trim().split("\n");
      expect(new Set(runs).size).toBe(count);
      // Those that were running when the manager died were run to their end, and delivered to the next one.
      expect(runs.length).toBe(count);
    },
    2 * LONG,
  );

  it(
    "started again, lets no runner go while an experiment that was handed out before may come back",
    async () => {
      const { start, outputs } = study({ "a.sh": "echo RES:done", "b.sh": "echo RES:done" });
      const port = await freePort();
      const first = start("-p", String(port), "-q", "--sort");
      await until("the listener is open", () => reaches(port), LONG);
      const before = await LiteralRunner.join(port, "vm");
      before.say("PETO");
      await before.hears("LABORO a .sh 13");
      await first.end("SIGKILL");
      const second = start("-p", String(port), "-q", "-a");
      await until("the listener is open", () => reaches(port), LONG);
      const runner = await LiteralRunner.join(port, "vm");
      const b = await runner.takes();
      expect(b.name).toBe("b");
      // FINO would leave `a` without a runner, if it has not arrived.
      runner.say("PETO");
      await runner.hears("ATENDI");
      await runner.runs(b);
      // If it has arrived, its result could not pass an open request.
      runner.say("PETO");
      await runner.hears("ATENDI");
      await runner.runs({ name: "a", script: Buffer.from("echo RES:done") });
      runner.say("PETO");
      await runner.hears("FINO");
      await runner.leaves();
      await ended(second, "the second manager");
      expect(second.exitCode).toBe(0);
      expect(outputs()).toEqual(["a.res", "b.res", "runexp.am"]);
    },
    LONG,
  );

  it(
    "interrupted, lets what runs end, and says so with its exit code",
    async () => {
      const { start, outputs } = study({
        "a.sh": "sleep 0.5; echo RES:done",
        "b.sh": "sleep 0.5; echo RES:done",
        "c.sh": "sleep 0.5; echo RES:done",
      });
      const run = start("-p", "0", "--local", "1", "--sort", "--shownames");
      await run.says(": a\n", LONG);
      run.signal("SIGINT");
      await ended(run, "it");
      expect(run.exitCode).toBe(130);
      expect(outputs()).toContain("a.res");
      expect(outputs()).not.toContain("c.res");
    },
    LONG,
  );
});

/** Whether something listens there. */
function reaches(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** A way to the port that can be cut. */
async function proxy(port: number): Promise<{ port: number; cut(): void; close(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect({ port, host: "127.0.0.1" });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    cut,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        cut();
      }),
  };
}
