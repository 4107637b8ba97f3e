import { describe, expect, it } from "vitest";
import { isRunning } from "../support/process-table.js";
import { openTestBroker } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

const failed = { code: "LABORO_SERVICE_FAILED" };

/** Answers each line with its own process id and the line; some words make it misbehave. */
const LINES = `while read -r line; do case $line in
  die) echo "I die" >&2; exit 7;;
  twice) printf "one\\ntwo\\n";;
  hang) exec sleep 60;;
  *) echo "$$ $line";;
esac; done`;

describe("a program that is kept and speaks in lines", () => {
  const lines = { command: LINES, mode: "lines" } as const;

  it("answers one request after the other from the same process", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { lines } });
    const answers: string[] = [];
    for (const word of ["a", "b", "c"]) answers.push(text(await client.request("lines", word)));
    const [pid] = answers[0]?.split(" ") ?? [];
    expect(answers).toEqual([`${pid} a`, `${pid} b`, `${pid} c`]);
    await expect(client.request("lines", "two\nlines")).rejects.toMatchObject({ ...failed, message: /several lines/ });
    expect(text(await client.request("lines", "d"))).toBe(`${pid} d`);
  });

  it("has at most one process a slot, and none when the worker has stopped", async () => {
    const { client, worker } = await openTestBroker();
    const kept = worker({ slots: 2, programs: { lines } });
    const all = await Promise.all(Array.from({ length: 50 }, (_, i) => client.request("lines", String(i))));
    const pids = new Set(all.map((answer) => text(answer).split(" ")[0] ?? ""));
    expect(all.map((answer) => text(answer).split(" ")[1])).toEqual(Array.from({ length: 50 }, (_, i) => String(i)));
    expect(pids.size).toBeLessThanOrEqual(2);
    await kept.stop();
    expect([...pids].filter((pid) => isRunning(Number(pid)))).toEqual([]);
  });

  it("is replaced when it dies, and its request gets what it said last", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { lines } });
    const [before] = text(await client.request("lines", "x")).split(" ");
    await expect(client.request("lines", "die")).rejects.toMatchObject({ ...failed, message: "I die" });
    const [after] = text(await client.request("lines", "x")).split(" ");
    expect(after).not.toBe(before);
  });

  it("is replaced when it says more than it was asked, so that no answer goes to another", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { lines } });
    expect(text(await client.request("lines", "twice"))).toBe("one");
    expect(text(await client.request("lines", "next"))).toMatch(/^\d+ next$/);
  });

  it("is replaced when nobody waits for its answer any more", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { lines } });
    const [pid = ""] = text(await client.request("lines", "x")).split(" ");
    const hung = client.request("lines", "hang", { timeoutMs: 200 });
    await expect(hung).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    expect(text(await client.request("lines", "y"))).toMatch(/^\d+ y$/);
    await until("the one that hung is gone", () => !isRunning(Number(pid)));
  });

  it("that cannot be started refuses each request", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { none: { command: "no-such-program-here", mode: "lines" } } });
    for (let i = 0; i < 3; i++) {
      await expect(client.request("none", "x")).rejects.toMatchObject({ ...failed, message: /not found/ });
    }
  });
});

describe("a program that is kept and puts the length first", () => {
  it("passes any bytes", async () => {
    const { client, worker } = await openTestBroker();
    // What comes in goes out, head and all.
    worker({ slots: 2, programs: { echo: { command: "cat", mode: "length" } } });
    const body = Buffer.from(Uint8Array.from({ length: 300_000 }, (_, i) => i % 256));
    const answers = await Promise.all(Array.from({ length: 8 }, () => client.request("echo", body)));
    for (const answer of answers) expect(Buffer.from(answer).equals(body)).toBe(true);
    expect((await client.request("echo", "")).length).toBe(0);
  });

  it("is given up when the length is one that nobody can mean", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, programs: { odd: { command: "printf 'HTTP/1.1 200 OK'; cat", mode: "length" } } });
    await expect(client.request("odd", "x")).rejects.toMatchObject({ code: expect.stringMatching(/TOO_LARGE|FAILED/) });
  });
});
