/** Tasks that somebody else kills, perhaps with the worker. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SILENT } from "../../src/base/log.js";
import { workerStops } from "../../src/worker/services.js";
import { type RunEnd, TaskRunner } from "../../src/worker/task-runner.js";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

/** One task of a runner whose process the test plays. */
function runTask() {
  const ends: RunEnd[] = [];
  const stops: number[] = [];
  let process: { ended(end: RunEnd): void } | undefined;
  const command = { terminate: (ms: number) => stops.push(ms), kill: () => {}, pause: () => {}, resume: () => {} };
  const shell = {
    run: (_: unknown, sink: typeof process) => {
      process = sink;
      return command;
    },
  };
  const deps = { slots: { slots: [shell] }, files: { commandOf: () => ({}) }, log: SILENT, now: () => 0 };
  const runner = new TaskRunner(deps as never, 0);
  const job = { recipe: { kind: "command" }, limits: {} };
  const run = runner.run({ job: 1, index: 0 } as never, job as never, { slot: 0 } as never, {
    output: () => {},
    progress: () => {},
    ended: (end) => ends.push(end),
  });
  const end = (how: Partial<RunEnd>): void => process?.ended({ started: 0, ended: 1, ...how });
  return { ends, stops, run, end };
}

it.each([{ signal: "SIGTERM" }, { signal: "SIGKILL" }, { code: 143 }])(
  "%o is reported when the worker has not stopped soon after",
  (how) => {
    const { ends, end } = runTask();
    end(how);
    expect(ends).toEqual([]);
    vi.advanceTimersByTime(250);
    expect(ends).toMatchObject([how]);
  },
);

it("a worker that stops meanwhile settles it at once, and once", () => {
  const { ends, stops, run, end } = runTask();
  end({ signal: "SIGTERM" });
  run.stop(5_000, workerStops());
  expect([ends.length, stops]).toEqual([1, []]);
  vi.advanceTimersByTime(1_000);
  expect(ends).toHaveLength(1);
});

it.each([{ code: 0 }, { code: 1 }, { signal: "SIGSEGV" }])("%o is reported at once", (how) => {
  const { ends, end } = runTask();
  end(how);
  expect(ends).toMatchObject([how]);
});

it("what the worker itself stops is reported at once", () => {
  const { ends, stops, run, end } = runTask();
  run.stop(5_000, workerStops());
  end({ signal: "SIGTERM" });
  expect([ends.length, stops]).toEqual([1, [5_000]]);
});
