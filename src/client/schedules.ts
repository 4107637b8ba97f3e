/** Schedules and allocators, as a client sees them. */
import type { OperationInput, OperationOutput } from "../broker/operations/index.js";
import type { AllocatorInput } from "../model/allocation.js";
import type { Submission } from "../model/job-input.js";
import type { ScheduleEdit, ScheduleInput } from "../model/schedule.js";
import { encodeInput, type TaskDefinition } from "../model/task-definition.js";
import type { CallOptions, Client } from "./client.js";
import { JobHandle } from "./job-handle.js";

/** A schedule as the broker has it. */
export type ScheduleInfo = OperationOutput<"schedule">;

/** When runs are started: `cron` with a `timeZone`, or `everyMs`; and the rules for them. */
export type ScheduleWhen = Omit<ScheduleInput, "job">;

/** How the job of each run is submitted. */
export type ScheduledTaskOptions = Omit<
  Submission,
  "recipe" | "entries" | "count" | "numbers" | "after" | "relay" | "resumes" | "idempotencyKey"
>;

/** `client.schedules`. */
export class Schedules {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Adds a schedule, or replaces the one of this name: a program may call it at each start. */
  set(name: string, schedule: ScheduleInput, options?: CallOptions): Promise<ScheduleInfo> {
    return this.#client.ask("scheduleSet", { ...schedule, schedule: name }, options);
  }

  /** The same for a task with one input. */
  async setTask<Input, Output>(
    name: string,
    when: ScheduleWhen,
    task: TaskDefinition<Input, Output, unknown>,
    input: NoInfer<Input>,
    job: ScheduledTaskOptions = {},
    options?: CallOptions,
  ): Promise<ScheduleInfo> {
    const entries = [await encodeInput(task, input)];
    const recipe = { kind: "call" as const, service: task.name };
    return this.set(name, { ...when, job: { ...job, recipe, entries } }, options);
  }

  /** Absent fields stay unchanged. */
  edit(
    name: string,
    changes: ScheduleEdit & Pick<OperationInput<"scheduleEdit">, "unset">,
    options?: CallOptions,
  ): Promise<ScheduleInfo> {
    return this.#client.ask("scheduleEdit", { ...changes, schedule: name }, options);
  }

  /** With its next points in time. Rejects with LABORO_NO_SUCH_SCHEDULE. */
  get(name: string, options?: CallOptions): Promise<ScheduleInfo> {
    return this.#client.ask("schedule", { schedule: name }, options);
  }

  /** By name. */
  async *list(options?: CallOptions): AsyncGenerator<ScheduleInfo, void> {
    for (let after: string | undefined; ; ) {
      const page = await this.#client.ask("schedules", { limit: 1000, ...(after && { after }) }, options);
      yield* page.schedules;
      after = page.next;
      if (after === undefined) return;
    }
  }

  /** Starts no more runs until `resume`. */
  pause(name: string, options?: CallOptions): Promise<ScheduleInfo> {
    return this.#client.ask("schedulePause", { schedule: name }, options);
  }

  /** Runs that were missed while it was paused are not repeated. */
  resume(name: string, options?: CallOptions): Promise<ScheduleInfo> {
    return this.#client.ask("scheduleResume", { schedule: name }, options);
  }

  /** Starts a run now. */
  async run(name: string, options?: CallOptions): Promise<JobHandle> {
    const { job } = await this.#client.ask("scheduleRun", { schedule: name }, options);
    return new JobHandle(this.#client, job);
  }

  /** The jobs of its runs stay. */
  async remove(name: string, options?: CallOptions): Promise<void> {
    await this.#client.ask("scheduleRemove", { schedule: name }, options);
  }
}

/** An allocator as the broker has it, with its allocations. */
export type AllocatorInfo = OperationOutput<"allocator">;

/** `client.allocators`. */
export class Allocators {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Adds an allocator, or replaces the one of this name. */
  set(name: string, allocator: AllocatorInput, options?: CallOptions): Promise<AllocatorInfo> {
    return this.#client.ask("allocatorSet", { ...allocator, allocator: name }, options);
  }

  /** Rejects with LABORO_NO_SUCH_ALLOCATOR. */
  get(name: string, options?: CallOptions): Promise<AllocatorInfo> {
    return this.#client.ask("allocator", { allocator: name }, options);
  }

  /** By name. */
  async list(options?: CallOptions): Promise<readonly AllocatorInfo[]> {
    return (await this.#client.ask("allocators", {}, options)).allocators;
  }

  /** The request that it would make now, its job script, the batch system's opinion. `allocator`: an unsaved one. */
  dryRun(name: string, allocator?: AllocatorInput, options?: CallOptions): Promise<OperationOutput<"allocatorDryRun">> {
    return this.#client.ask("allocatorDryRun", { allocator: name, ...(allocator && { spec: allocator }) }, options);
  }

  /** What it has done and why, oldest first. */
  async log(name: string, options?: CallOptions): Promise<OperationOutput<"allocatorLog">["lines"]> {
    return (await this.#client.ask("allocatorLog", { allocator: name }, options)).lines;
  }

  /** Requests no more allocations until `resume`, and cancels queued ones. */
  pause(name: string, options?: CallOptions): Promise<AllocatorInfo> {
    return this.#client.ask("allocatorPause", { allocator: name }, options);
  }

  /** Requests allocations again at once, also after a pause by failures. */
  resume(name: string, options?: CallOptions): Promise<AllocatorInfo> {
    return this.#client.ask("allocatorResume", { allocator: name }, options);
  }

  /** Allocations that run end by themselves, unless they are to be cancelled. */
  async remove(name: string, how: { readonly cancelRunning?: boolean } = {}, options?: CallOptions): Promise<void> {
    await this.#client.ask("allocatorRemove", { allocator: name, ...how }, options);
  }
}
