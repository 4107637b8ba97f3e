import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DelayedJobs, StoreClock } from "../../src/broker/delayed-jobs.js";
import { request } from "../store/suite/kit.js";

/** Time that passes, and clocks that are set meanwhile. */
class Machine {
  /** What has really passed, awake and asleep. */
  real = 0;
  asleep = 0;
  wallAhead = 1_000_000;

  readonly sources = {
    wall: () => this.real + this.wallAhead,
    monotonic: () => this.real - this.asleep,
    boot: () => 5_000_000 + this.real,
  };
}

/** A submission may come before the clocks are compared again. */
const measured = fc.boolean();
const step = fc.oneof(
  fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(10_000), measured }),
  fc.record({ kind: fc.constant("sleep" as const), ms: fc.integer({ min: 5_000, max: 1_000_000 }), measured }),
  fc.record({ kind: fc.constant("set" as const), ms: fc.integer({ min: -1_000_000, max: 1_000_000 }), measured }),
);

describe("the clock of delayed jobs", () => {
  it("measures delays by the time that has passed, and named times by the clock, however that is set", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step), async (steps) => {
        const machine = new Machine();
        const clock = await StoreClock.open(machine.sources);
        const start = clock.steady;
        for (const { kind, ms, measured } of steps) {
          if (kind === "set") machine.wallAhead += ms;
          else machine.real += ms;
          if (kind === "sleep") machine.asleep += ms;
          if (measured) await clock.measure();
          expect(clock.steady - start).toBeCloseTo(machine.real, 3);
          expect(clock.current).toBe(machine.sources.wall());
        }
      }),
    );
  });

  it("goes on from the newest job where the clock was set back while the broker was down", async () => {
    const machine = new Machine();
    const made = machine.sources.wall() + 86_400_000;
    const clock = await StoreClock.open(machine.sources, made);
    expect(clock.steady).toBe(made);
    expect(clock.current).toBe(machine.sources.wall());
    machine.real += 250;
    expect(clock.steady).toBe(made + 250);
  });

  it("starts a job after its delay, or at its time, also where the clock was set since the start", async () => {
    for (const setMs of [-3_600_000, 3_600_000]) {
      const machine = new Machine();
      const clock = await StoreClock.open(machine.sources);
      const delays = new DelayedJobs(undefined as never, clock, undefined as never);
      machine.wallAhead += setMs;
      for (const time of [{ delayMs: 60_000 }, { notBefore: machine.sources.wall() + 60_000 }]) {
        const spec = delays.withTime(request(time));
        expect(delays.msUntil(spec)).toBe(60_000);
        machine.real += 59_000;
        expect(delays.msUntil(spec)).toBe(1_000);
        machine.real -= 59_000;
      }
    }
  });

  it("is never ahead of the store's clock, however long that takes to answer", async () => {
    const machine = new Machine();
    let storeAhead = 77_000;
    const store = async (): Promise<number> => {
      const answer = machine.real + storeAhead;
      machine.real += 40;
      return answer;
    };
    const clock = await StoreClock.open({ ...machine.sources, store });
    const start = { real: machine.real, steady: clock.steady };
    expect(clock.current).toBe(machine.real + storeAhead - 40);
    storeAhead -= 50_000;
    await clock.measure();
    expect(clock.current).toBe(machine.real + storeAhead - 40);
    expect(clock.steady - start.steady).toBe(machine.real - start.real);
  });
});
