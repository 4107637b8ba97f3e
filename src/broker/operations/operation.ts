/** The parts of an operation: name, required role, HTTP path, input, output, action. Also fields that several share. */
import { LaboroError } from "../../base/errors.js";
import type { TracedConnections } from "../../base/traced-connections.js";
import { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { normalize, type Ranges } from "../../model/ranges.js";
import type { ObjectSchema, ReadType, Schema, Shape } from "../../model/schema.js";
import * as s from "../../model/schema.js";
import { type RequiredRole, type Role, requireRole } from "../access/tokens.js";
import type { Core } from "../core.js";
import type { Asks } from "./asks.js";

/** What an operation knows of the broker beyond its core. */
export interface BrokerInfo {
  readonly version: string;
  readonly connections: TracedConnections;
  readonly asks: Asks;
  /** Space on the disk of the data directory, in bytes; absent if it is on another machine. */
  disk?(): Promise<{ readonly free: number; readonly total: number }>;
  /** Reports of acknowledged data that is missing from the data directory. */
  damage(): Promise<readonly string[]>;
  /** A fallback closes its listeners again; absent if this broker is not a fallback. */
  stepBack?(): void;
  listeners(): readonly { readonly name: string; readonly url: string }[];
  /** A link that logs a browser in once, with this role. */
  newLoginLink(role: Role): { readonly code: string; readonly url: string; readonly expires: number };
}

export interface OperationContext {
  readonly role: Role;
  /** Aborts when the caller no longer waits. */
  readonly signal: AbortSignal;
  readonly info: BrokerInfo;
}

export type Method = "GET" | "POST" | "DELETE";

export interface Operation<In extends ObjectSchema<Shape>, Out extends Schema<object, object>> {
  readonly name: string;
  readonly role: RequiredRole;
  readonly method: Method;
  /** Below /api/v1; `{name}` is a field of the input. */
  readonly path: string;
  readonly summary: string;
  readonly input: In;
  readonly output: Out;
  /** The largest body over HTTP, in bytes; 1 MiB if absent. */
  readonly bodyLimit?: number;
  perform(core: Core, input: ReadType<In>, context: OperationContext): Promise<ReadType<Out>> | ReadType<Out>;
}

export type AnyOperation = Omit<Operation<ObjectSchema<Shape>, Schema<object, object>>, "perform"> & {
  perform(core: Core, input: never, context: OperationContext): Promise<object> | object;
};

export const authorize = ({ name, role: needed }: Pick<AnyOperation, "name" | "role">, role: Role): void =>
  requireRole(role, needed, name);

export const operation = <In extends ObjectSchema<Shape>, Out extends Schema<object, object>>(
  definition: Operation<In, Out>,
): Operation<In, Out> => definition;

/** The longest long poll. */
const MAX_WAIT = 600_000;

export const job = s.mapped(s.integer(1, Number.MAX_SAFE_INTEGER, "the number of the job"), JobId);
export const index = s.count("the place of the task in its job, from 0");
export const number = s.count(
  "what people call the task: its number in the array, or else its place from 1; a resumed batch keeps its numbers",
);
export const progress = s.described(s.text(4096), "the progress of its handler, as JSON");
export const waitMs = s.withDefault(s.integer(0, MAX_WAIT, "wait up to this many milliseconds for something new"), 0);
export const limit = (most: number, usual = most) =>
  s.withDefault(s.integer(1, most, "at most this many in one answer"), usual);

export const range = s.mapped(
  s.object({ first: s.count(), last: s.optional(s.count()) }),
  ({ first, last = first }, what) => ({
    first,
    last: s.integer(first, Number.MAX_SAFE_INTEGER).read(last, `${what}.last`),
  }),
);
export const ranges = s.described(s.list(range, 100_000), "ranges of task indices; all if absent");
export const rangesOut = s.list(s.object({ first: s.count(), last: s.count() }), 100_000);
export const nothing = s.object({});

export async function requireJob(core: Core, id: JobId): Promise<Job> {
  const found = (await core.store.job(id)) ?? (await core.submitted(id));
  if (found === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
  return found;
}

/** A job that can still be changed. */
export async function requireOpenJob(core: Core, id: JobId): Promise<Job> {
  const found = await requireJob(core, id);
  await core.jobs.unlocked(id);
  if (found.ended === undefined) return found;
  // It may have been rerun meanwhile.
  if (core.state.jobs.has(id)) return requireJob(core, id);
  throw new LaboroError("LABORO_JOB_ENDED", `job ${id} has ended already: ${found.ended.state}`);
}

export function tasksWithin({ id, count }: Job, given: Ranges | undefined): Ranges {
  const found = normalize(given ?? [{ first: 0, last: count - 1 }]);
  for (const { last } of found) if (last >= count) throw noSuchTask({ id, count });
  return found;
}

export const noSuchTask = ({ id, count }: Pick<Job, "id" | "count">): LaboroError =>
  new LaboroError(
    "LABORO_NO_SUCH_TASK",
    `job ${id} has ${count === 1 ? "one task, its index is 0" : `tasks with index 0 to ${count - 1}`}`,
  );
