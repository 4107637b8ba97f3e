/** A number or string of one meaning; a plain one has to be converted explicitly. */
type Branded<Base, Name extends string> = Base & { readonly __is: Name };

export type JobId = Branded<number, "job">;
/** 0 .. job.count - 1. People know a task by its number, see task-numbers.ts. */
export type TaskIndex = number;
/** One hand-out of a task. Rises at each hand-out; the fence against late results. */
export type Attempt = number;
/** The lasting identity of a worker: laboro's own workers keep it in their data directory. */
export type WorkerId = Branded<string, "worker">;
/** One run of a worker process. */
export type SessionId = Branded<string, "session">;
export type BrokerId = Branded<string, "broker">;
/** A range of tasks in one place: waiting at a broker, or claimed by a worker. */
export type TaskRangeId = Branded<number, "task range">;
/** A request that waits for its answer, as the broker counts them. */
export type RequestId = Branded<number, "request">;

export const JobId = (id: number): JobId => id as JobId;
export const WorkerId = (id: string): WorkerId => id as WorkerId;
export const SessionId = (id: string): SessionId => id as SessionId;
export const BrokerId = (id: string): BrokerId => id as BrokerId;
export const TaskRangeId = (id: number): TaskRangeId => id as TaskRangeId;
export const RequestId = (id: number): RequestId => id as RequestId;

/** A task's job and index as one string. */
export const taskKey = (job: JobId, index: TaskIndex): string => `${job}.${index}`;
