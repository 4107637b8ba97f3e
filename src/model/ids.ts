/** A number or string with its own type. A plain one has to be converted explicitly. */
type Branded<Base, Name extends string> = Base & { readonly __is: Name };

export type JobId = Branded<number, "job">;
/** 0 .. job.count - 1. Users see the number of a task instead, see task-numbers.ts. */
export type TaskIndex = number;
/** Rises each time the task is assigned. Results of earlier attempts are rejected by it. */
export type Attempt = number;
/** The permanent identity of a worker. Laboro's own workers keep it in their data directory. */
export type WorkerId = Branded<string, "worker">;
/** One run of a worker process. */
export type SessionId = Branded<string, "session">;
/** A range of tasks that wait at one broker, or are claimed by one worker. */
export type TaskRangeId = Branded<number, "task range">;
/** A request that waits for its reply. */
export type RequestId = Branded<number, "request">;

export const JobId = (id: number): JobId => id as JobId;
export const WorkerId = (id: string): WorkerId => id as WorkerId;
export const SessionId = (id: string): SessionId => id as SessionId;
export const TaskRangeId = (id: number): TaskRangeId => id as TaskRangeId;
export const RequestId = (id: number): RequestId => id as RequestId;

/** A task's job and index as one string. */
export const taskKey = (job: JobId, index: TaskIndex): string => `${job}.${index}`;
