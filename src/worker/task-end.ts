/** What a worker reports when a task has ended, to the program that embeds the worker. */
import type { Log } from "../base/log.js";
import { succeeded } from "../model/outcome.js";
import { errorFromValue } from "../model/task-definition.js";
import { taskNumber } from "../model/task-numbers.js";
import type { JobRecipe, TaskRef } from "../protocols/laboro/messages.js";
import type { RunEnd } from "./task-runner.js";

/** How an attempt at a task has ended at this worker. It may be tried again. */
export type TaskEndInfo = {
  /** The number of the job. */
  readonly job: number;
  /** The place of the task in its job, from 0. */
  readonly index: number;
  /** The number that people see. */
  readonly number: number;
  /** 1 for the first. */
  readonly attempt: number;
  /** The name of the task that was handled, or of the service; absent for a command. */
  readonly task?: string | undefined;
  /** How long it took. */
  readonly ms: number;
} & (
  | { readonly state: "succeeded"; readonly thrown?: undefined }
  | {
      readonly state: "failed";
      /** What the handler threw. If it threw nothing (a time limit, a command), an error with the reason. */
      readonly thrown: Error;
    }
);

export type OnTaskEnded = (task: TaskRef, recipe: JobRecipe | undefined, end: RunEnd) => void;

/** An error that `report` throws is logged. */
export const taskEndReporter =
  (report: (end: TaskEndInfo) => void, log: Log): OnTaskEnded =>
  ({ job, index, attempt }, jobRecipe, end) => {
    if (jobRecipe === undefined) return;
    const task = jobRecipe.recipe.kind === "call" ? jobRecipe.recipe.service : undefined;
    const info = { job, index, number: taskNumber(jobRecipe, index), attempt, task, ms: end.ended - end.started };
    const how = end.timedOut === true ? "it ran past its time limit" : `it ended with ${end.signal ?? end.code}`;
    const thrown = errorFromValue(end.value) ?? new Error(end.error ?? how);
    try {
      report(
        succeeded({ ...end, outputBytes: 0 }) ? { ...info, state: "succeeded" } : { ...info, state: "failed", thrown },
      );
    } catch (cause) {
      log.error({ job, task: info.number, error: String(cause) }, "onTaskEnded has thrown an error");
    }
  };
