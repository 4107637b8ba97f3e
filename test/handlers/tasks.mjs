/** Handlers for threads. */
import { writeFileSync } from "node:fs";
import { threadId } from "node:worker_threads";
import { bytes, defineTask, NoRetry } from "../../dist/entries/task.js";

export const double = defineTask("double").handler((input) => ({
  doubled: input * 2,
  at: `${process.pid}.${threadId}`,
}));
export const block = defineTask("block").handler(({ ms, marker }) => {
  if (marker !== undefined) writeFileSync(marker, "begun", { flag: "a" });
  const end = performance.now() + ms;
  while (performance.now() < end);
  return "unblocked";
});
export const untilAborted = defineTask("untilAborted").handler(
  (_input, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve("aborted"))),
);
export const reason = defineTask("reason").handler(
  (_input, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
);
export const eat = defineTask("eat").handler((what) => {
  const numbers = [];
  const set = new Set();
  const object = {};
  if (what === "one large array") return new Array(5e7).fill(0).length;
  for (let i = 0; ; i++) {
    if (what === "numbers") numbers.push(i);
    else if (what === "a set") set.add(i);
    else object[`member ${i}`] = i;
  }
});
export const late = defineTask("late").handler(() => {
  setTimeout(() => {
    throw new RangeError("after the result");
  }, 10);
  return "done";
});
export const spread = defineTask("spread").handler((_input, context) => {
  const { job, attempt, log } = { ...context };
  log("with its own log");
  return { job, attempt, aborted: context.signal.aborted };
});
export const pid = defineTask("pid").handler(() => process.pid);
export const crash = defineTask("crash").handler(
  () => new Promise(() => setImmediate(() => Promise.reject(new TypeError("nobody catches this")))),
);
export const exit = defineTask("exit").handler(() => process.exit(7));
export const fail = defineTask("fail").handler(() => {
  const cause = Object.assign(new RangeError("the disk"), { code: "EDISK" });
  throw Object.assign(new NoRetry("not again", { cause }), { code: 17 });
});
export const report = defineTask("report").handler(async (_input, context) => {
  context.progress({ done: 0.5 });
  context.log("half of", { it: 1 });
  const { job, index, number, attempt, key, deadline, after } = context;
  return { job, index, number, attempt, key, deadline: typeof deadline, after };
});
export const invert = defineTask("invert", { input: bytes, output: bytes }).handler((input) =>
  input.map((b) => 255 - b),
);
export default [
  defineTask("sum").handler(async (_input, { results }) => {
    let sum = 0;
    for await (const { value } of results(defineTask("double"))) sum += value.doubled;
    return sum;
  }),
];
export const flood = defineTask("flood").handler((how, context) => {
  for (let i = 0; ; i++) context[how](`line ${i} ${"x".repeat(200)}`);
});
export const odd = defineTask("odd").handler((what) => throwOdd(what));

/** Also for handlers of the test's own process. */
export function throwOdd(what) {
  switch (what) {
    case "undefined":
      throw undefined;
    case "an empty message":
      throw new RangeError();
    case "a getter that throws":
      throw {
        get message() {
          throw new Error("from the getter");
        },
      };
    case "a proxy that throws": {
      const get = () => {
        throw new Error("from the proxy");
      };
      throw new Proxy({}, { get });
    }
    case "a chain of huge causes": {
      const text = "\u0001".repeat(100_000);
      let error;
      for (let i = 0; i < 20; i++)
        error = Object.assign(new Error(`huge ${text}`, { cause: error }), { stack: text, code: text });
      throw error;
    }
    case "with a cause":
      throw Object.assign(new TypeError("bad file", { cause: new RangeError("too long") }), { code: "EBAD" });
    case "an object":
      throw { code: "EQUOTA", left: 0 };
    case "errors of several addresses":
      throw new AggregateError([new Error("::1 refused"), new Error("127.0.0.1 refused")]);
    case "itself as cause": {
      const error = new Error("round");
      error.cause = error;
      throw error;
    }
  }
  return "nothing thrown";
}
