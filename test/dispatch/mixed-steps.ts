/** What may happen in a mixed history, and to which workers. */
import fc from "fast-check";
import { ALL } from "../../src/model/recipe.js";

const SERVICES = ["echo", "sum"];
const nat = fc.nat(9);

export const livelyWorkers = fc.array(
  fc.record({
    slots: fc.integer({ min: 1, max: 4 }),
    room: fc.record({ gpu: fc.nat(2) }),
    reserveRequests: fc.nat(1),
    services: fc.subarray(SERVICES),
    resumable: fc.boolean(),
    canPrefetch: fc.boolean(),
  }),
  { minLength: 2, maxLength: 4 },
);

const job = fc.record({
  count: fc.integer({ min: 1, max: 15 }),
  slots: fc.integer({ min: 1, max: 4 }),
  needs: fc.record({ gpu: fc.constantFrom(0, 0, 0.5, 1, 2, ALL) }),
  priority: fc.integer({ min: 0, max: 2 }),
  retries: fc.nat(2),
  retry: fc.record({ jitter: fc.constantFrom(0, 0.5), factor: fc.constantFrom(1, 3), never: fc.constantFrom([], [1]) }),
  delay: fc.constantFrom(
    undefined,
    undefined,
    { delayMs: 100 },
    { delayMs: 30_000 },
    { at: 1_000_150 },
    { at: 1_060_000 },
  ),
  maxRunning: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
  halt: fc.option(
    fc.record({
      on: fc.constantFrom("fail", "fail", "success", "done"),
      count: fc.integer({ min: 1, max: 3 }),
      now: fc.boolean(),
    }),
    { nil: undefined },
  ),
  service: fc.option(fc.constantFrom(...SERVICES), { nil: undefined }),
});

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("submit" as const), job }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("single" as const), at: nat }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("join" as const), at: nat, again: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom("away" as const, "leave" as const, "drain" as const), at: nat }),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant("finish" as const),
      at: nat,
      many: nat,
      code: fc.constantFrom(0, 0, 0, 1),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constantFrom("start" as const, "late" as const, "refuse" as const), at: nat }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("obey" as const), at: nat }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("request" as const),
      service: fc.constantFrom(...SERVICES, "nobody's"),
      retry: fc.boolean(),
      within: fc.constantFrom(5, 1_000, 100_000),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("reply" as const), at: nat }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("forget" as const), at: nat }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("cancel" as const), at: nat, first: nat, length: nat }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("edit" as const),
      at: nat,
      changes: fc.record(
        { priority: nat, maxRunning: fc.integer({ min: 1, max: 4 }), timeLimitMs: nat },
        { requiredKeys: [] },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("undrain" as const), at: nat }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("hold" as const), at: nat, held: fc.boolean() }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.constantFrom<number>(1, 5, 200, 40_000) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("clock" as const), ahead: fc.integer({ min: -90_000, max: 90_000 }) }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("slots" as const), at: nat, slots: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("forgive" as const), at: nat }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("reclaim" as const), at: nat, many: nat, index: nat }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom("halt" as const, "resume" as const) }) },
);

export const steps = fc.array(step, { minLength: 20, maxLength: 120 });
export type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
