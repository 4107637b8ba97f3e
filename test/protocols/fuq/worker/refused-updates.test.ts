/** UPDATEs that a foreman refuses: they go out again, and no result is lost in silence. */
import { expect, it } from "vitest";
import { raw, Yard } from "./kit.js";
import { type Caller, counts, ERROR, JOB, OK, openRawForeman, task, UPDATE } from "./literal-foreman.js";

const OVERFLOW = 1;
const BAD_MESSAGE = 6;

async function workerWithUpdate(tasks: number, slots = 2) {
  const yard = new Yard();
  const foreman = await openRawForeman();
  const worker = yard.worker(raw(foreman.port), { slots });
  const caller = await foreman.caller(1);
  await caller.welcome();
  const numbers = Array.from({ length: tasks }, (_, i) => i + 1);
  caller.sayWith(
    JOB,
    3,
    numbers.map((number) => task(number, { dir: yard.dir, command: "/bin/true" })),
  );
  await caller.next();
  return { yard, worker, caller, update: await caller.next() };
}

const said = ({ type, data }: Awaited<ReturnType<Caller["next"]>>) => ({ type, data });

it("after ERROR(overflow) and silence the same UPDATE comes again, and the worker can still leave in order", async () => {
  const { worker, caller, update } = await workerWithUpdate(1);
  expect(update).toMatchObject({ type: UPDATE, seq: 4 });
  caller.say(ERROR, update.seq, 0, OVERFLOW);
  const left = worker.stop({ finish: true });
  const again = await caller.next();
  expect(said(again)).toEqual(said(update));
  expect(again.seq).toBeGreaterThan(update.seq);
  caller.say(OK, again.seq, counts(2, 0));
  await left;
});

it("after ERROR(overflow) and one good reply it comes again at once, before any other", async () => {
  const { yard, caller, update } = await workerWithUpdate(2);
  caller.say(ERROR, update.seq, 0, OVERFLOW);
  caller.sayWith(JOB, update.seq + 1, [task(3, { dir: yard.dir, command: "/bin/true" })]);
  // A JOB of no tasks is answered OK.
  caller.sayWith(JOB, update.seq + 3, []);
  caller.sayWith(JOB, update.seq + 5, []);
  // Both slots are taken until their UPDATEs are acknowledged: no good reply, so nothing goes out yet.
  expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 2, seq: update.seq + 1 });
  expect(await caller.next()).toMatchObject({ type: OK, seq: update.seq + 3 });
  const again = await caller.next();
  expect(said(again)).toEqual(said(update));
  expect(again.seq).toBe(update.seq + 4);
  caller.say(OK, again.seq, counts(1, 1));
  expect(await caller.next()).toMatchObject({ type: OK, seq: update.seq + 5 });
});

it("after another ERROR it is repeated, four times in all; then the slot is free again", async () => {
  const { yard, caller, update } = await workerWithUpdate(1, 1);
  let last = update;
  for (let times = 1; times < 4; times++) {
    caller.say(ERROR, last.seq, 0, BAD_MESSAGE);
    last = await caller.next();
    expect(said(last)).toEqual(said(update));
  }
  caller.say(ERROR, last.seq, 0, BAD_MESSAGE);
  caller.sayWith(JOB, last.seq + 1, [task(2, { dir: yard.dir, command: "/bin/true" })]);
  expect(await caller.next()).toMatchObject({ type: OK, seq: last.seq + 1, arg0: counts(0, 1) });
  expect(await caller.next()).toMatchObject({ type: UPDATE, data: { Task: 2 } });
});
