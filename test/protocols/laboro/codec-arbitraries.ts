/** Random valid messages of the link. */
import fc from "fast-check";
import { ERROR_CODES, type ErrorCode } from "../../../src/base/errors.js";
import { JobId, SessionId } from "../../../src/model/ids.js";
import { rangesOf } from "../../../src/model/ranges.js";
import type { Recipe, Resources } from "../../../src/model/recipe.js";
import { arrayFault } from "../../../src/model/task-numbers.js";
import type {
  AttemptRange,
  DoneTask,
  FromClient,
  FromWorker,
  HeldState,
  ToClient,
  ToWorker,
} from "../../../src/protocols/laboro/messages.js";

/** Records and dictionaries as programs have them, with the usual prototype. */
const record: typeof fc.record = (model: object, constraints: object = {}) =>
  fc.record(model, { ...constraints, noNullPrototype: true }) as never;
const dictionary = <Value>(keys: fc.Arbitrary<string>, values: fc.Arbitrary<Value>, sizes: { maxKeys: number }) =>
  fc.dictionary(keys, values, { ...sizes, noNullPrototype: true });

const count = fc.oneof(fc.nat(), fc.maxSafeNat());
const position = fc.integer({ min: 0, max: 2 ** 50 });
const time = fc.oneof(position, fc.double({ min: 0, max: 4e12, noNaN: true })).map((value) => value + 0);
const name = fc.oneof(
  fc.string({ minLength: 1, maxLength: 40 }),
  fc.string({ unit: "binary", minLength: 1, maxLength: 80 }),
  fc.constantFrom("echo", "default", "x".repeat(1024)),
);
const names = fc.array(name, { maxLength: 5 });
/** `__proto__` is no key on the link. */
const key = name.filter((text) => text !== "__proto__");
const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array));
const textOrBytes = fc.oneof(fc.string({ unit: "binary" }), bytes);
const code = fc.constantFrom(...(Object.keys(ERROR_CODES) as ErrorCode[]));
const job = count.map(JobId);
const attempt = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const amounts: fc.Arbitrary<Resources> = fc
  .tuple(dictionary(key, time, { maxKeys: 4 }), time)
  .map(([others, slots]) => ({ ...others, slots }));

const range: fc.Arbitrary<AttemptRange> = fc
  .record({ job, a: count, b: count, attempt })
  .map(({ job, a, b, attempt }) => ({ job, first: Math.min(a, b), last: Math.max(a, b), attempt }));
const ranges = fc.array(range, { maxLength: 20 });
const ref = { job, index: count, attempt };
const heldState = fc.constantFrom<HeldState>("prefetched", "running", "finished");
const acceptedBy = record({ acceptedBy: name }, { requiredKeys: [] });
const held = fc.tuple(range, heldState, acceptedBy).map(([tasks, state, rest]) => ({ ...tasks, state, ...rest }));
const remembered = fc
  .tuple(record({ identity: name, epoch: count, job }), acceptedBy)
  .map(([known, rest]) => ({ ...known, ...rest }));

const smallOutput = fc
  .array(record({ stream: fc.constantFrom("stdout" as const, "stderr" as const), bytes }), { maxLength: 5 })
  .filter((parts) => parts.some((part) => part.bytes.length > 0));

const done: fc.Arbitrary<DoneTask> = fc
  .tuple(
    record({ ...ref, started: time, ended: time, outputBytes: count }),
    fc.oneof(
      fc.constant({}),
      record({ code: fc.integer() }),
      record({ signal: fc.constantFrom("SIGKILL", "SIGTERM") }),
    ),
    record(
      {
        timedOut: fc.constant(true),
        error: fc.string({ unit: "binary", maxLength: 200 }),
        value: bytes,
        retryAfterMs: fc.oneof(time, fc.constant("never" as const)),
        valueBytes: count,
        cpuMs: position,
        peakMemory: count,
      },
      { requiredKeys: [] },
    ),
    fc.option(smallOutput, { nil: undefined }),
  )
  .map(([task, end, rest, output]) => {
    const outputBytes = output?.reduce((sum, part) => sum + part.bytes.length, 0) ?? task.outputBytes;
    return { ...task, ...end, ...rest, outputBytes, ...(output === undefined ? {} : { output }) };
  });

const stride = fc
  .tuple(fc.nat(), fc.nat(), fc.integer({ min: 1, max: 1_000 }))
  .map(([first, length, step]) => ({ first, last: first + length, step }));

/** Of a recipe: as a client may submit it. */
const argument = textOrBytes.filter((value) => !Buffer.from(value).includes(0));
const word = argument.filter((value) => value.length > 0);
const plainText = (maxLength: number) =>
  fc
    .string({ unit: "binary", minLength: 1, maxLength })
    .filter((text) => text.length <= maxLength && !text.includes("\0"));

const surroundings = {
  array: fc.array(stride, { maxLength: 3 }).filter((array) => arrayFault(array) === undefined),
  dir: argument,
  env: dictionary(fc.stringMatching(/^[A-Za-z_]\w{0,20}$/), argument, { maxKeys: 4 }),
  stdin: bytes,
};
const recipe: fc.Arbitrary<Recipe> = fc.oneof(
  record(
    {
      kind: fc.constant("command" as const),
      argv: fc.tuple(word, fc.array(argument, { maxLength: 4 })).map(([first, rest]) => [first, ...rest]),
      placeholders: fc.boolean(),
      shell: fc.constant(false),
      log: plainText(20),
      ...surroundings,
    },
    { requiredKeys: ["kind", "argv"] },
  ),
  record(
    {
      kind: fc.constant("script" as const),
      content: bytes,
      type: plainText(16),
      args: fc.array(argument, { maxLength: 3 }),
      ...surroundings,
    },
    { requiredKeys: ["kind", "content", "type"] },
  ),
  record(
    { kind: fc.constant("call" as const), service: plainText(40), body: bytes },
    { requiredKeys: ["kind", "service"] },
  ),
  word.map((line): Recipe => ({ kind: "command", argv: [line], shell: true })),
);

/** What JSON has, and bytes. */
const free: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(null, true, false),
    fc.double().map((value) => value + 0),
    fc.integer(),
    fc.string({ unit: "binary" }),
    bytes,
    fc.array(tie("value"), { maxLength: 4 }),
    dictionary(key, tie("value"), { maxKeys: 4 }),
  ),
})).value;
const config = dictionary(key, free, { maxKeys: 4 });
const beat = fc.constant({ type: "HEARTBEAT" as const });
const type = <Type extends string>(value: Type) => fc.constant(value);
const heartbeatMs = fc.integer({ min: 1, max: 86_400_000 });
const urls = fc.array(
  fc.webUrl({ size: "small" }).filter((url) => url.length < 1000),
  { maxLength: 3 },
);

export const fromWorker: fc.Arbitrary<FromWorker> = fc.oneof(
  beat,
  fc
    .tuple(
      record({
        type: type("JOIN"),
        version: count,
        secret: fc.string({ minLength: 32, maxLength: 100 }),
        session: name.map(SessionId),
        name,
        total: amounts,
        tags: names,
        pool: name,
        services: names,
        reserveRequests: count,
        held: fc.array(held, { maxLength: 5 }),
      }),
      record({ lifetimeMs: time, store: remembered, tunnelled: fc.constant(true as const) }, { requiredKeys: [] }),
    )
    .map(([join, rest]) => ({ ...join, ...rest })),
  record({ type: type("STARTED"), tasks: fc.array(record(ref), { maxLength: 30 }) }),
  record({ type: type("DONE"), seq: count, tasks: fc.array(done, { maxLength: 30 }) }),
  record({ type: type("OUTPUT"), ...ref, stream: fc.constantFrom("stdout", "stderr"), offset: position, bytes }),
  record({ type: type("RELAY"), ...ref, stream: fc.constantFrom("stdout", "stderr"), offset: position, bytes }),
  record({ type: type("RETRACTED"), tasks: ranges }),
  record({ type: type("CANCELLED"), tasks: ranges }),
  record({ type: type("GET_FILE"), id: count, job: ref.job, file: count, from: count }),
  record({ type: type("PUT_FILE"), id: count, ...ref, from: position, bytes }),
  record({ type: type("REPLY"), id: count, body: bytes, error: code }, { requiredKeys: ["type", "id", "body"] }),
  record({ type: type("SERVICES"), services: names }),
  record({ type: type("SERVICES"), services: names, tags: names }),
  record({ type: type("SERVICES"), services: names, total: amounts }),
  record({ type: type("SERVICES"), services: names, tags: names, total: amounts }),
  record({ type: type("MACHINE"), cpus: count, load: time, memory: count, freeMemory: count }),
  fc.constant({ type: "LEAVING" as const }),
);

const tasks: fc.Arbitrary<ToWorker> = fc.oneof(
  range.map((tasks) => ({ type: "TASKS" as const, ...tasks })),
  range.chain((tasks) => count.map((atOnce) => ({ type: "TASKS" as const, ...tasks, atOnce }))),
  fc
    .tuple(job, fc.nat(), attempt, fc.array(textOrBytes, { minLength: 1, maxLength: 9 }))
    .map(([job, first, attempt, entries]) => ({
      type: "TASKS" as const,
      job,
      first,
      last: first + entries.length - 1,
      attempt,
      entries,
    })),
);

export const toWorker: fc.Arbitrary<ToWorker> = fc.oneof(
  beat,
  tasks,
  record({
    type: type("WELCOME"),
    version: count,
    broker: name,
    keep: fc.array(record({ ...ref, outputStored: count }), { maxLength: 4 }),
    drop: ranges,
    heartbeatMs,
    config,
    window: count,
    store: record({ identity: name, epoch: count, older: fc.boolean() }),
  }),
  record(
    {
      type: type("RECIPE"),
      job,
      recipe,
      needs: amounts,
      limits: record(
        { timeLimitMs: time.filter((ms) => ms > 0), outputCap: count, relay: fc.boolean() },
        { requiredKeys: ["outputCap"] },
      ),
      numbers: fc
        .uniqueArray(fc.nat(), { minLength: 1, maxLength: 5 })
        .map((numbers) => numbers.sort((a, b) => a - b).map((first) => ({ first, last: first, step: 1 }))),
      acceptedBy: name,
    },
    { requiredKeys: ["type", "job", "recipe", "needs", "limits"] },
  ),
  record({ type: type("ACK"), seq: count }),
  record({ type: type("CREDIT"), bytes: count }),
  record({ type: type("RETRACT"), tasks: ranges }),
  record({ type: type("CANCEL"), tasks: ranges }),
  fc.constantFrom(
    { type: "DRAIN" as const },
    { type: "STOP" as const },
    { type: "STOP" as const, slots: 3 },
    { type: "STOP" as const, slots: "now" as const },
  ),
  record({ type: type("CONFIG"), config }),
  record({ type: type("BROKERS"), urls }),
  record({ type: type("CALL"), id: count, service: name, body: bytes, deadline: time }),
  record({ type: type("CANCEL_CALL"), id: count }),
  record({ type: type("RELAYED"), ...ref, end: count }),
);

const ended = fc
  .tuple(done, record({ number: count, state: fc.constantFrom("succeeded" as const, "failed" as const), worker: name }))
  .map(([{ job: _, ...outcome }, rest]) => ({ ...outcome, ...rest }));

export const fromClient: fc.Arbitrary<FromClient> = fc.oneof(
  beat,
  record({ type: type("HELLO"), version: count, name }),
  record({
    type: type("REQUEST"),
    id: count,
    service: name,
    body: bytes,
    deadline: time,
    pool: name,
    retry: fc.boolean(),
  }),
  record({ type: type("CANCEL_REQUEST"), id: count }),
  record({ type: type("OPERATION"), id: count, operation: name, input: free }),
  record({ type: type("OPERATION"), id: count, operation: name, input: free, deadline: time }),
  record({
    type: type("FOLLOW"),
    id: count,
    job: ref.job,
    has: fc.array(fc.nat()).map((indices) => rangesOf([...new Set(indices)].sort((a, b) => a - b))),
    tasks: fc.boolean(),
    live: fc.boolean(),
    relay: fc.boolean(),
  }),
  record({ type: type("FOLLOW_CREDIT"), id: count, tasks: count }),
  record({ type: type("TAKEN"), ...ref, end: count }),
);

export const toClient: fc.Arbitrary<ToClient> = fc.oneof(
  beat,
  record({ type: type("HELLO_ACK"), version: count, broker: name, heartbeatMs }),
  record({ type: type("BROKERS"), urls }),
  record({ type: type("RESPONSE"), id: count, body: bytes, error: code }, { requiredKeys: ["type", "id", "body"] }),
  record({ type: type("RESULT"), id: count, value: free }),
  record({ type: type("RELAY"), ...ref, stream: fc.constantFrom("stdout", "stderr"), offset: position, bytes }),
  record(
    {
      type: type("PROGRESS"),
      id: count,
      job: ref.job,
      tasks: fc.array(ended, { maxLength: 3 }),
      running: fc.array(record({ index: count, number: count, attempt: ref.attempt }), { maxLength: 3 }),
      counters: record({ succeeded: count, failed: count, cancelled: count }),
      held: fc.boolean(),
      ended: fc.constantFrom("succeeded", "failed", "cancelled"),
    },
    { requiredKeys: ["type", "id", "job", "tasks"] },
  ),
  record({ type: type("ERROR"), id: count, code, message: fc.string({ unit: "binary" }) }),
);
