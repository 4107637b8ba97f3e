/**
 * A worker that asks its foreman for tasks over HTTP, one question for each slot at a time.
 *
 *   asking     /job/request is on its way, or waits at the foreman for something to do
 *   running    the task that came of it runs
 *   telling    /job/update is on its way, again and again until it is answered; it asks for the next task, too
 *   ended      ::stop:: came, or the worker leaves
 */

import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Task, Update } from "../messages.js";
import { RUNNING } from "../messages.js";
import type { Answer, ForemanHttp } from "./http-client.js";
import type { Tasks } from "./tasks.js";
import type { Way, WayEvents } from "./way.js";

export interface PollerOptions extends WayEvents {
  readonly http: ForemanHttp;
  readonly tasks: Tasks;
  readonly slots: number;
  readonly log: Log;
  readonly firstDelayMs?: number;
  /** After an answer without a task, which the original gives when something went wrong. */
  readonly pauseMs?: number;
}

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 60_000;
const PAUSE_MS = 5_000;
/** How often an update is told that the foreman answers with an error of its own. */
const TELLINGS = 4;
/** How long questions that wait are left waiting for ::stop::. */
const STOP_MS = 5_000;

type Found = readonly Task[] | "stop" | undefined;

export class Poller implements Way {
  readonly #options: PollerOptions;
  /** Aborted when nothing more is asked, and when nothing more is told. */
  readonly #asking = new AbortController();
  readonly #telling = new AbortController();
  /** By job and task: the slots that wait for its end. */
  readonly #waiting = new Map<string, ((update: Update) => void)[]>();
  #inVain = 0;
  #leaving = false;

  constructor(options: PollerOptions) {
    this.#options = options;
    const loops = Array.from({ length: options.slots }, () => this.#loop());
    void Promise.all(loops).then(() => options.onOver());
  }

  get joined(): boolean {
    return this.#options.http.badge !== undefined && this.#inVain === 0;
  }

  tell(): void {
    for (const update of this.#options.tasks.updates) {
      const key = keyOf(update.jobId, update.task);
      for (const resolve of this.#waiting.get(key) ?? []) resolve(update);
      this.#waiting.delete(key);
    }
  }

  async leave(): Promise<void> {
    this.#leaving = true;
    const told = await this.#options.http.leave(AbortSignal.timeout(STOP_MS)).catch(() => false);
    // The foreman answers with ::stop::. One that cannot is left with the question.
    if (told) setTimeout(() => this.#asking.abort(), STOP_MS).unref();
    else this.#asking.abort();
  }

  close(): void {
    this.#leaving = true;
    this.#asking.abort();
    this.#telling.abort();
  }

  async #loop(): Promise<void> {
    let found = await this.#ask();
    while (found !== "stop" && !this.#telling.signal.aborted) {
      const [task] = found ?? [];
      if (task !== undefined && this.#options.tasks.start([task])) {
        const update = await this.#endOf(task);
        found = await this.#tell(update);
        this.#options.tasks.acknowledged(update);
        continue;
      }
      if (this.#leaving) return;
      // Undefined where a pause was made already.
      if (found !== undefined) await pause(this.#options.pauseMs ?? PAUSE_MS, this.#asking.signal);
      found = await this.#ask();
    }
  }

  #endOf({ job, task }: Task): Promise<Update> {
    const key = keyOf(job.jobId, task);
    return new Promise((resolve) => this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), resolve]));
  }

  async #ask(): Promise<Found> {
    return this.#found(await this.#post("job/request", () => ({ nproc: 1 }), this.#asking.signal));
  }

  /** Until it is heard, or clearly not wanted. */
  async #tell({ jobId, task, success, status }: Update): Promise<Found> {
    const { signal } = this.#telling;
    const body = () => ({ job_id: jobId, task, success, status, ...(this.#leaving ? {} : { newjob: { nproc: 1 } }) });
    for (let count = 0; !signal.aborted; ) {
      const answer = await this.#post("job/update", body, signal);
      if (answer?.status === 200) return this.#found(answer);
      if (answer === undefined) continue;
      if (answer.status === 400 || ++count >= TELLINGS) {
        this.#options.log.error({ job: jobId, task }, `the foreman refuses the result with ${answer.status}: given up`);
        return undefined;
      }
      await pause(this.#options.firstDelayMs ?? FIRST_DELAY_MS, signal);
    }
    return undefined;
  }

  #found(answer: Answer | undefined): Found {
    if (answer === undefined) return undefined;
    if (answer.status !== 200) return [];
    const given = readTasks(answer.text);
    if (given !== undefined && given.length > 1 && given !== "stop")
      this.#options.log.warn({}, "the foreman gave more than it was asked for");
    if (given === undefined) this.#options.log.warn({}, "the foreman's answer is no list of tasks");
    return given ?? [];
  }

  /** Undefined where no answer came; then a pause has been made. */
  async #post(path: string, body: () => object, signal: AbortSignal): Promise<Answer | undefined> {
    const { http, onJoined, onRefused, onUnreachable, firstDelayMs = FIRST_DELAY_MS } = this.#options;
    try {
      await http.hello(signal);
      onJoined();
      const answer = await http.post(path, body(), signal);
      this.#inVain = 0;
      // It does not know us any more, so that we have to say who we are again.
      if (answer.status === 401 || answer.status === 403) http.forget();
      return answer;
    } catch (cause) {
      if (signal.aborted) return undefined;
      const error = asLaboroError(cause);
      const known = http.badge !== undefined;
      if (error.code === "LABORO_BAD_TOKEN" || (error.code === "LABORO_BAD_CERTIFICATE" && !known)) {
        this.close();
        onRefused(error);
        return undefined;
      }
      onUnreachable(error, ++this.#inVain);
      await pause(Math.min(LONGEST_DELAY_MS, firstDelayMs * 2 ** Math.min(this.#inVain - 1, 20)), signal);
      return undefined;
    }
  }
}

/** So long, or until the signal comes. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
    if (signal.aborted) done();
  });
}

const keyOf = (job: number, task: number): string => `${job}.${task}`;

/** The list in an answer, or that it says stop; undefined for anything else. */
function readTasks(text: string): readonly Task[] | "stop" | undefined {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (list === null) return [];
  if (!Array.isArray(list)) return undefined;
  const tasks: Task[] = [];
  for (const one of list as Record<string, unknown>[]) {
    if (one?.name === "::stop::" && one.task === -1) return "stop";
    const { task, job_id: jobId, num_tasks: numTasks = 0 } = one ?? {};
    if (typeof task !== "number" || typeof jobId !== "number" || typeof numTasks !== "number") return undefined;
    const [name, workingDir, loggingDir, command] = [one.name, one.working_dir, one.logging_dir, one.command].map(
      (value) => (typeof value === "string" ? value : ""),
    ) as [string, string, string, string];
    tasks.push({ task, job: { jobId, name, numTasks, workingDir, loggingDir, command, status: RUNNING } });
  }
  return tasks;
}
