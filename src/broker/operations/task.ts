/** Operations on one task of a job: its state, command and attempts, and why it waits. */
import type { JobId } from "../../model/ids.js";
import { END_STATES, type Job } from "../../model/job.js";
import type { TaskResult } from "../../model/outcome.js";
import { taskCommand } from "../../model/placeholders.js";
import { contains } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { locateTask } from "../group/group-view.js";
import { operation } from "./operation.js";
import { index, job, noSuchTask, number, requireJob } from "./shared-fields.js";
import { taskResult, withNumber } from "./tasks.js";

const MAX_COMMAND = 16_384;

export const task = operation({
  name: "task",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}",
  summary: "One task: where it is, how it ended, its earlier attempts",
  input: s.object({ job, index }),
  output: s.object({
    job: s.count("the number of the job"),
    index,
    number,
    state: s.choice("waiting", "running", ...END_STATES),
    attempt: s.count("the latest attempt; 0 if there was none"),
    worker: s.optional(s.text()),
    reason: s.described(s.text(), "one line for people"),
    result: s.optional(s.described(taskResult, "once it has ended")),
    earlierAttempts: s.described(s.list(taskResult, 100_000), "attempts that were not the last"),
    command: s.optional(s.described(s.text(MAX_COMMAND), "what it runs, as it could be typed in a shell")),
  }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const { job, index } = given;
    const result = await resultOf(core, given);
    const earlier = await core.store.earlierAttempts(job, index);
    const earlierAttempts = earlier.map((one) => withNumber(found, one));
    const command = await commandOf(core, found, index);
    const common = { job, index, number: taskNumber(found, index), earlierAttempts, ...command };
    if (result !== undefined) {
      const { state, attempt, worker } = result;
      return { ...common, state, attempt, worker, reason: whyEnded(result), result: withNumber(found, result) };
    }
    const { reason, claim } = await locateTask(core, found, index);
    if (claim !== undefined) {
      const { started, attempt, worker } = claim;
      return { ...common, state: started ? ("running" as const) : ("waiting" as const), attempt, worker, reason };
    }
    const attempt = earlierAttempts.at(-1)?.attempt ?? 0;
    if (!contains(found.cancels, index)) return { ...common, state: "waiting" as const, attempt, reason };
    return { ...common, state: "cancelled" as const, attempt, reason };
  },
});

export const explain = operation({
  name: "explain",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/explain",
  summary: "Why a task is not running, in words",
  input: s.object({ job, index }),
  output: s.object({ reason: s.text() }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const result = await resultOf(core, given);
    return { reason: result === undefined ? (await locateTask(core, found, given.index)).reason : whyEnded(result) };
  },
});

/** Empty if a placeholder's value cannot be inserted safely. Such a task does not start. */
async function commandOf(core: Core, job: Job, index: number): Promise<{ command?: string }> {
  const { id, recipe, hasEntries } = job;
  const number = taskNumber(job, index);
  const array = recipe.kind !== "call" && recipe.array !== undefined ? String(number) : undefined;
  const [entry = array] = hasEntries ? await core.store.entries(id, { first: index, last: index }) : [];
  try {
    const text = taskCommand(recipe, { number, entry });
    return { command: text.length > MAX_COMMAND ? `${text.slice(0, MAX_COMMAND - 1)}…` : text };
  } catch {
    return {};
  }
}

interface Task {
  readonly job: JobId;
  readonly index: number;
}

export async function requireTask(core: Core, given: Task): Promise<Job> {
  const found = await requireJob(core, given.job);
  if (given.index >= found.count) throw noSuchTask(found);
  return found;
}

export async function resultOf(core: Core, { job, index }: Task): Promise<TaskResult | undefined> {
  const page = await core.store.results(job, { from: index, limit: 1 });
  return page.results.find((one) => one.index === index);
}

function whyEnded({ state, code, signal, timedOut, error, worker }: TaskResult): string {
  const how =
    error ??
    (timedOut === true ? "its time limit ended it" : signal !== undefined ? `${signal} ended it` : `exit code ${code}`);
  if (state === "succeeded") return `it has succeeded on ${worker}`;
  return state === "failed" ? `it has failed on ${worker}: ${how}` : `it was cancelled on ${worker}: ${how}`;
}
