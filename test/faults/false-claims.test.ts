import { expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import { decodeFrame, encodeFrame } from "../../src/protocols/laboro/codec.js";
import type { FromWorker, ToWorker } from "../../src/protocols/laboro/messages.js";
import { busySite, expectUnharmed, join, openLink, sendFrames } from "../support/intruder.js";
import { TRUE } from "../support/recipes.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const TASKS = 400;
const newSite = sites();

it("takes no report of a task from a worker that does not hold it, and no second JOIN", async () => {
  const busy = await busySite(newSite(), TASKS);
  const { site, job } = busy;
  const id = JobId(job.id);
  const reports: FromWorker[] = [];
  for (let index = 0; index < TASKS; index++) {
    const task = { job: id, index, attempt: 1 };
    reports.push({ type: "STARTED", tasks: [task] });
    reports.push({ type: "OUTPUT", ...task, stream: "stdout", offset: 0, bytes: Buffer.from("intruded") });
    reports.push({ type: "DONE", seq: index + 1, tasks: [{ ...task, code: 1, started: 1, ended: 2, outputBytes: 8 }] });
  }
  reports.push({ type: "RETRACTED", tasks: [{ job: id, first: 0, last: Number.MAX_SAFE_INTEGER, attempt: 1 }] });
  reports.push({ type: "CANCELLED", tasks: [{ job: id, first: 0, last: Number.MAX_SAFE_INTEGER, attempt: 1 }] });
  const held = { job: id, first: 0, last: TASKS - 1, attempt: 1, state: "running" } as const;
  const closed = await sendFrames(site, [encodeFrame([join({ held: [held] })]), encodeFrame(reports)], 1_000);
  expect(closed).toBeUndefined();
  expect(await sendFrames(site, [encodeFrame([join()]), encodeFrame([join()])], 2_000)).toMatch(/second JOIN/);
  await expectUnharmed(`${3 * TASKS} reports of another worker's tasks`, busy, TASKS);
});

it("gives credit for output in the order of sending, also for output that it drops", async () => {
  const site = newSite();
  await site.startBroker();
  const client = await site.client();
  const { id } = await client.submit({ recipe: TRUE, pool: "mine" });
  const link = await openLink(site);
  const heard: ToWorker[] = [];
  link.on("message", (bytes: Buffer) => heard.push(...decodeFrame(bytes, "brokerToWorker")));
  link.send(encodeFrame([join({ pool: "mine" })]));
  await until("the task was assigned", () => heard.some(({ type }) => type === "TASKS"));
  const output = (attempt: number, text: string): FromWorker => {
    const task = { job: JobId(id), index: 0, attempt };
    return { type: "OUTPUT", ...task, stream: "stdout", offset: 0, bytes: Buffer.from(text) };
  };
  // The second is of an attempt that the worker does not have: the worker must not take its credit for the first.
  for (const message of [output(1, "stored"), output(2, "dropped")]) link.send(encodeFrame([message]));
  const credits = (): number[] => heard.flatMap((message) => (message.type === "CREDIT" ? [message.bytes] : []));
  await until("both are credited", () => credits().length === 2);
  expect(credits()).toEqual(["stored".length, "dropped".length]);
  link.terminate();
});

it("closes the link of a worker whose bytes begin where no store can have them, and goes on", async () => {
  const site = newSite();
  const broker = await site.startBroker();
  const client = await site.client();
  const bytes = Buffer.from("x");
  const far = Number.MAX_SAFE_INTEGER;
  for (const type of ["PUT_FILE", "OUTPUT"] as const) {
    const { id } = await client.submit({ recipe: TRUE, pool: type });
    const task = { job: JobId(id), index: 0, attempt: 1 };
    const message: FromWorker =
      type === "OUTPUT"
        ? { type, ...task, stream: "stdout", offset: far, bytes }
        : { type, id: 1, ...task, from: far, bytes };
    const link = await openLink(site);
    const heard: ToWorker[] = [];
    const closed = new Promise<string>((resolve) => link.once("close", (_, reason) => resolve(reason.toString())));
    link.on("message", (frame: Buffer) => heard.push(...decodeFrame(frame, "brokerToWorker")));
    link.send(encodeFrame([join({ pool: type, name: type, secret: type.repeat(8) })]));
    await until("the task was assigned", () => heard.some((one) => one.type === "TASKS"));
    link.send(encodeFrame([message]));
    expect(await closed, type).toMatch(/^LABORO_BAD_MESSAGE: (from|offset): expected a whole number/);
  }
  expect(broker.over).toBe(false);
  expect((await fetch(`${site.url}/healthz`)).status).toBe(200);
});

it("is not stopped by a worker that claims to hold more tasks than there can be", async () => {
  const busy = await busySite(newSite(), 300);
  const held = {
    job: JobId(busy.job.id),
    first: 0,
    last: Number.MAX_SAFE_INTEGER,
    attempt: 1,
    state: "running",
  } as const;
  await sendFrames(busy.site, [encodeFrame([join({ held: [held] })])]);
  const healthy = fetch(`${busy.site.url}/healthz`, { signal: AbortSignal.timeout(5_000) });
  expect(await healthy.then(({ status }) => status, String)).toBe(200);
  await expectUnharmed("a claim of 2^53 tasks", busy, 300);
});

it("answers every question with odd values by a code, and none with a fault of its own", async () => {
  const busy = await busySite(newSite(), 300);
  const { client } = busy;
  const decoy = await client.submit({ recipe: TRUE, count: 5, pool: "nobody", held: true });
  const ended = await client.submit({ recipe: TRUE });
  await ended.wait();
  const job = decoy.id;
  const questions: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
    submit: { recipe: TRUE, count: 1, pool: "nobody", held: true },
    job: { job },
    jobs: { before: 5, limit: 5 },
    wait: { job: ended.id },
    tasks: { job, from: 0, limit: 5, state: ["failed"], worker: "none" },
    running: { job, from: 0, limit: 5 },
    task: { job, index: 0 },
    entries: { job, from: 0, limit: 5 },
    output: { job, index: 0, from: 0, limit: 5, attempt: 1, stream: "stdout" },
    explain: { job, index: 0 },
    hold: { job },
    release: { job },
    rerun: { job, tasks: [{ first: 0, last: 1 }] },
    remove: { job },
    cancel: { job, tasks: [{ first: 0, last: 1 }], reason: "odd" },
    drain: { worker: "none" },
    stop: { worker: "none" },
    nothing: {},
  };
  const deep = Array.from({ length: 30 }).reduce((inner: unknown) => [inner], 0);
  const odd = [
    -1,
    0,
    1.5,
    2 ** 53 - 1,
    1e300,
    true,
    "",
    "x",
    "\0",
    "a".repeat(100_000),
    [],
    [null],
    {},
    deep,
    Buffer.alloc(9),
    [{ first: 3, last: 1 }],
  ];
  const more = [
    "name",
    "priority",
    "needs",
    "tags",
    "after",
    "limits",
    "entries",
    "timeLimitMs",
    "outputCap",
    "retries",
    "__proto__",
  ];
  const asked: Promise<string | undefined>[] = [];
  for (const [operation, input] of Object.entries(questions)) {
    for (const field of [...Object.keys(input), ...(operation === "submit" ? more : [])]) {
      // A job that is there and has not ended would rightly be waited for.
      const values = operation === "wait" ? odd.filter((value) => value !== job) : odd;
      for (const value of values) {
        const question = client.ask(
          operation as "status",
          Object.fromEntries([...Object.entries(input), [field, value]]),
        );
        asked.push(
          question.then(
            () => undefined,
            (cause: { code?: string; message: string }) =>
              `${cause.code} for ${operation}.${field}: ${cause.message.slice(0, 200)}`,
          ),
        );
      }
    }
  }
  const refusals = (await Promise.all(asked)).filter((refusal) => refusal !== undefined);
  const right = /^LABORO_(BAD_INPUT|NO_SUCH_JOB|NO_SUCH_TASK|NO_SUCH_WORKER|JOB_ENDED|JOB_OPEN) /;
  const faults = refusals.filter((refusal) => !right.test(refusal));
  expect(faults).toEqual([]);
  await expectUnharmed(`${asked.length} odd questions, ${refusals.length} refused`, busy, 300);
});
