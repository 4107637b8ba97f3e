import { expect, it } from "vitest";
import { PeerErrors } from "../../src/base/log.js";

function logged() {
  const lines: string[] = [];
  let time = 0;
  const warn = (fields: { times?: number }, text: string) =>
    void lines.push(fields.times === undefined ? text : `${text} (${fields.times} times)`);
  const log = { info: () => {}, warn: warn as (fields: object, text: string) => void, error: () => {} };
  const errors = new PeerErrors(log, () => time);
  const report = (why: string, peer = "10.0.0.1") => errors.report("round-robin", peer, "LABORO_BAD_MESSAGE", why);
  const later = (ms: number): void => {
    time += ms;
  };
  return { lines, report, later };
}

it("different faults of one address are each logged", () => {
  const { lines, report } = logged();
  report("the version is not LMQv100");
  report("no empty frame");
  report("no empty frame", "10.0.0.2");
  expect(lines).toEqual(["the version is not LMQv100", "no empty frame", "no empty frame"]);
});

it("the same fault is logged once a minute, with how often it came, whatever its numbers and quoted words", () => {
  const { lines, report, later } = logged();
  for (let i = 0; i < 500; i++) report(`TRACKEXEC 0a${i}ff of "peer ${"x".repeat(i % 7)}" is refused`);
  expect(lines).toEqual(['TRACKEXEC 0a0ff of "peer " is refused']);
  later(60_000);
  report('TRACKEXEC 01 of "me" is refused');
  expect(lines.at(-1)).toBe('TRACKEXEC 01 of "me" is refused (500 times)');
});

it("what a peer has sent, quoted, makes no fault of its own, whatever bytes it has", () => {
  const { lines, report } = logged();
  const letters = 'abc"\\\n é{}';
  for (let i = 0; i < 500; i++) {
    const sent = Array.from({ length: i }, (_, at) => letters[(i * 7 + at * (i % 11)) % letters.length]).join("");
    report(`SALUTON was expected, it sent ${JSON.stringify(sent)}`);
  }
  expect(lines).toEqual(['SALUTON was expected, it sent ""']);
});

it("an address that always has another fault gets no more than twenty lines a minute", () => {
  const { lines, report, later } = logged();
  const word = (i: number): string => String.fromCharCode(97 + (Math.floor(i / 26) % 26), 97 + (i % 26));
  for (let i = 0; i < 600; i++) report(`no command ${word(i)}`);
  expect(lines.length).toBe(20);
  later(60_000);
  for (let i = 0; i < 600; i++) report(`no command ${word(i)}`);
  expect(lines.length).toBeLessThanOrEqual(40);
  expect(lines.at(-1)).toMatch(/ \(581 times\)$/);
});
