/** A folder of experiments at the manager's listener: every result once, whatever becomes of the runners. */
import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { scaled } from "../../support/scale.js";
import { until } from "../../support/wait.js";
import { type Batch, type BatchOptions, newStudy, openBatch as openBatchIn, writeScripts } from "./batch-kit.js";
import { LiteralRunner } from "./peers.js";
import { QuickRunner } from "./quick-runner.js";

let dir: string;
beforeEach(() => {
  dir = newStudy();
});

const write = (scripts: Readonly<Record<string, string>>): void => writeScripts(dir, scripts);
const openBatch = (options: BatchOptions = {}): Promise<Batch> => openBatchIn(dir, options);

const resFiles = (): string[] =>
  readdirSync(join(dir, "outputs"), { recursive: true })
    .map(String)
    .filter((name) => name.endsWith(".res"));

describe("a folder of experiments", () => {
  const COUNT = scaled(500);

  it(`of ${COUNT}, with one runner killed, one cut and one that answers garbage: each result once`, async () => {
    write(Object.fromEntries(Array.from({ length: COUNT }, (_, i) => [`e${i}.sh`, i % 50 === 0 ? "fail" : "ok"])));
    const { batch, port, complaints, lines, aftermath } = await openBatch();
    const killed = new QuickRunner({
      ...{ port, host: "killed", threads: 3 },
      onJob: (_job, runner) => runner.taken === Math.floor(COUNT / 8) && runner.kill(),
    });
    const cut = new QuickRunner({
      ...{ port, host: "cut", threads: 3 },
      onJob: (_job, runner) => runner.taken % Math.ceil(COUNT / 20) === 0 && runner.cut(),
    });
    let garbage = 0;
    const mad = new QuickRunner({
      ...{ port, host: "mad", threads: 2 },
      onJob: (_job, runner) => {
        if (runner.taken % Math.ceil(COUNT / 40) === 0 && garbage++ < 10) runner.say("REZULTO ../../x success 5");
      },
    });
    await until("all experiments have ended", () => batch.allEnded, 120_000);
    await Promise.all([killed.ended, cut.ended, mad.ended]);
    aftermath.save();
    expect(resFiles()).toHaveLength(COUNT);
    const ended = lines.filter((line) => line.includes("[RESULT]"));
    expect(ended).toHaveLength(COUNT);
    expect(new Set(ended.map((line) => /finished (\S+) with/.exec(line)?.[1])).size).toBe(COUNT);
    expect(batch.failed).toHaveLength(Math.ceil(COUNT / 50));
    const table = readFileSync(join(dir, "outputs", "runexp.am"), "utf8").split("\n");
    expect(table).toHaveLength(2 * COUNT);
    // What lies ready is empty.
    for (const name of readdirSync(join(dir, "drafts"))) expect(statSync(join(dir, "drafts", name)).size).toBe(0);
    expect(cut.connections).toBeGreaterThan(1);
    expect(mad.connections).toBeGreaterThan(1);
    expect(complaints.length).toBeGreaterThan(0);
    expect(complaints.every((line) => line.includes("mad is disconnected"))).toBe(true);
  }, 150_000);

  it("keeps names, sub-folders and what was said as they are", async () => {
    write({ "a success 3.sh": "1", "sub dir/my job.sh": "2", "uniç.m": "3", "dot.v1.sh": "4" });
    const { batch, port } = await openBatch();
    const runner = await LiteralRunner.join(port, "vm");
    const output = Buffer.from([0, 255, 10, 13, 128]);
    const seen: string[] = [];
    for (let i = 0; i < 4; i++) {
      const { name, kind, script } = await runner.takes();
      seen.push(`${Buffer.from(name, "latin1")} ${kind} ${script}`);
      await runner.delivers(name, "success", output);
    }
    expect(seen.sort()).toEqual(["a success 3 .sh 1", "dot.v1 .sh 4", "sub dir/my job .sh 2", "uniç .m 3"]);
    await until("it is over", () => batch.allEnded);
    expect(resFiles().sort()).toEqual(["a success 3.res", "dot.v1.res", "sub dir/my job.res", "uniç.res"]);
    expect(readFileSync(join(dir, "outputs", "uniç.res")).equals(output)).toBe(true);
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.leaves();
  });

  it("lets two runners go as soon as nothing waits, and neither is put on hold", async () => {
    write(Object.fromEntries(["a", "b", "c", "d"].map((name) => [`${name}.sh`, name])));
    const { batch, port } = await openBatch();
    const runners = [await LiteralRunner.join(port, "one"), await LiteralRunner.join(port, "two")];
    const jobs = [];
    for (const runner of runners) jobs.push([await runner.takes(), await runner.takes()]);
    for (const [at, runner] of runners.entries()) {
      const [first, second] = jobs[at] ?? [];
      await runner.delivers(first?.name ?? "", "success", "x");
      runner.say("PETO");
      // Its other thread and those of the other runner still run something.
      await runner.hears("FINO");
      await runner.delivers(second?.name ?? "", "success", "x");
      await runner.leaves();
    }
    await until("it is over", () => batch.allEnded);
  });

  it("keeps a runner with nothing to run for what a lost one had, and lets it go when nothing can come back", async () => {
    write({ "a.sh": "1", "b.sh": "2" });
    const { batch, port, lines } = await openBatch();
    const [one, two, idle] = await Promise.all(["one", "two", "idle"].map((host) => LiteralRunner.join(port, host)));
    if (one === undefined || two === undefined || idle === undefined) throw new Error("three runners");
    const mine = await one.takes();
    const theirs = await two.takes();
    idle.say("PETO");
    await one.delivers(mine.name, "success", "x");
    one.say("PETO");
    // All that is left runs at this one.
    two.say("PETO");
    await two.hears("FINO");
    expect([one.hasHeardNothing(), idle.hasHeardNothing()]).toEqual([true, true]);
    // It is lost after all: somebody who waits has it at once.
    two.cut();
    const heirs = await until(
      "one of the others has it",
      () => [one, idle].find((other) => !other.hasHeardNothing()),
      30_000,
    );
    expect(lines.at(-1)).toMatch(/ \[two\] is gone: its experiment waits for another runner\n$/);
    const again = await heirs.takesAnswer();
    expect(again.name).toBe(theirs.name);
    await heirs.delivers(again.name, "failure", "y");
    await until("it is over", () => batch.allEnded);
    const other = heirs === one ? idle : one;
    await other.hears("FINO");
    heirs.say("PETO");
    await heirs.hears("FINO");
    // One that comes after the last is told so.
    const late = await LiteralRunner.join(port, "late");
    late.say("PETO");
    await late.hears("FINO");
    for (const runner of [one, idle, late]) await runner.leaves();
    expect(lines.join("")).not.toMatch(/(one|idle|late)\] is gone/);
  });

  it("gives what comes back when all have got FINO to the next runner that joins", async () => {
    write(Object.fromEntries(["a", "b", "c", "d"].map((name) => [`${name}.sh`, name])));
    const { batch, port, lines } = await openBatch();
    const lost = await LiteralRunner.join(port, "lost");
    const left = await LiteralRunner.join(port, "left");
    const [first, kept, gone] = [await lost.takes(), await left.takes(), await lost.takes()];
    const last = await left.takes();
    await lost.delivers(first.name, "success", "x");
    lost.say("PETO");
    await lost.hears("FINO");
    await left.delivers(last.name, "success", "x");
    left.say("PETO");
    await left.hears("FINO");
    await left.delivers(kept.name, "success", "x");
    await left.leaves();
    lost.cut();
    await until("the loss is told", () => lines.some((line) => line.includes("[lost] is gone")));
    expect(batch.allEnded).toBe(false);
    const next = await LiteralRunner.join(port, "next");
    const again = await next.takes();
    expect(again.name).toBe(gone.name);
    await next.delivers(again.name, "success", "y");
    await until("it is over", () => batch.allEnded);
    next.say("PETO");
    await next.hears("FINO");
    await next.leaves();
  });

  it("does not send a runner away while another has not fetched what is assigned to it", async () => {
    write({ "a.sh": "1", "b.sh": "2", "c.sh": "3" });
    const { port } = await openBatch();
    const slow = await LiteralRunner.join(port, "slow");
    const first = await slow.takes();
    const busy = await LiteralRunner.join(port, "busy");
    const second = await busy.takes();
    // A thread that delivers is expected to ask at once, so the last one is kept for it; but it does not ask.
    await slow.delivers(first.name, "success", "x");
    busy.say("PETO");
    const third = await busy.takesAnswer();
    expect(new Set([first.name, second.name, third.name]).size).toBe(3);
    for (const { name } of [second, third]) await busy.delivers(name, "success", "x");
  });

  it("records a result that is too large as a failure, says so, and keeps nothing of it", async () => {
    write({ "a.sh": "1", "b.sh": "2" });
    const { batch, port, complaints, lines } = await openBatch({ maxResultBytes: 1_000 });
    const runner = await LiteralRunner.join(port, "vm");
    const large = await runner.takes();
    await runner.delivers(large.name, "success", Buffer.alloc(1_001, "x"));
    const why = "its result is not kept: it has 1001 bytes, 1000 are allowed";
    expect(complaints).toEqual([`${large.name} has failed: ${why}`]);
    expect(readFileSync(join(dir, "outputs", `${large.name}.res`), "utf8")).toBe(`runexp summary: failure\n\n${why}\n`);
    expect(readdirSync(join(dir, "drafts"))).toEqual([]);
    // The runner goes on.
    const other = await runner.takes();
    await runner.delivers(other.name, "success", Buffer.alloc(1_000, "y"));
    await until("it is over", () => batch.allEnded);
    expect(batch.failed).toEqual([large.name]);
    expect(lines.join("")).toContain(`finished ${large.name} with failure`);
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.leaves();
  });

  it("writes nothing of a result that stops half way", async () => {
    write({ "a.sh": "1" });
    const { batch, port } = await openBatch();
    const half = await LiteralRunner.join(port, "half");
    const { name } = await half.takes();
    half.say(`REZULTO ${name} success 1000`);
    await half.hears("PRETA");
    half.say("only so much");
    half.cut();
    const whole = await LiteralRunner.join(port, "whole");
    const again = await whole.takes();
    expect(readdirSync(join(dir, "outputs"))).toEqual([]);
    await whole.delivers(again.name, "success", "all of it");
    await until("it is over", () => batch.allEnded);
    expect(readFileSync(join(dir, "outputs", "a.res"), "utf8")).toBe("all of it");
    whole.say("PETO");
    await whole.hears("FINO");
    await whole.leaves();
  });

  it("counts a result that came whole, once, although its runner was gone before it could hear so", async () => {
    write({ "a.sh": "1" });
    const { batch, port, lines } = await openBatch();
    const gone = await LiteralRunner.join(port, "gone");
    const { name } = await gone.takes();
    gone.say(`REZULTO ${name} success 9`);
    await gone.hears("PRETA");
    gone.sayAndGo("all of it");
    await until("it is over", () => batch.allEnded);
    expect(readFileSync(join(dir, "outputs", "a.res"), "utf8")).toBe("all of it");
    // It comes again with what it thinks was not taken.
    const back = await LiteralRunner.join(port, "gone");
    await back.delivers(name, "success", "once more");
    expect(readFileSync(join(dir, "outputs", "a.res"), "utf8")).toBe("all of it");
    expect(lines.filter((line) => line.includes("[RESULT]"))).toHaveLength(1);
    back.say("PETO");
    await back.hears("FINO");
    await back.leaves();
  });

  it("says who is on hold and who is banned", async () => {
    write(Object.fromEntries(Array.from({ length: 14 }, (_, i) => [`e${i}.sh`, "fail"])));
    const { port, lines } = await openBatch({ standing: true });
    const runner = await LiteralRunner.join(port, "bad");
    for (let i = 0; i < 10; i++) await runner.delivers((await runner.takes()).name, "failure", "no");
    runner.say("PETO");
    await runner.hears("ELIRI");
    await runner.leaves();
    expect(lines.at(-1)).toMatch(/\[bad\] is banned: only 0 of 10 experiments succeeded/);
  });

  it("goes on without a script that is gone", async () => {
    write({ "a.sh": "1", "b.sh": "2" });
    const { batch, port } = await openBatch();
    rmSync(join(dir, "runs", "a.sh"));
    const runner = await LiteralRunner.join(port, "vm");
    const { name } = await runner.takes();
    expect(name).toBe("b");
    await runner.delivers(name, "success", "x");
    await until("it is over", () => batch.allEnded);
    expect(batch.hasEnded("a")).toBe(false);
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.leaves();
  });
});
