/**
 * A worker that asks its foreman for tasks over HTTP, one request for each slot at a time.
 *
 *   polling    /job/request is on its way, or waits at the foreman for a task
 *   running    the task that came of it runs
 *   updating   /job/update is on its way, again and again until it is answered; it asks for the next task, too
 *   ended      ::stop:: came, or the worker leaves
 */

import { setTimeout as delay } from "node:timers/promises";
import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { pairKey, pairOf, RUNNING, type Task, type Update } from "../messages.js";
import type { ForemanTasks } from "./foreman-tasks.js";
import type { ForemanHttp, HttpResponse } from "./http-client.js";
import { FIRST_DELAY_MS, isFinal, retryDelay, type Transport, type TransportEvents } from "./transport.js";

interface PollingTransportOptions extends TransportEvents {
  readonly http: ForemanHttp;
  readonly tasks: ForemanTasks;
  readonly slots: number;
  readonly log: Log;
  readonly firstDelayMs: number | undefined;
}

/** After an answer without a task, which the original gives when something went wrong. */
const PAUSE_MS = 5_000;
/** How often an update that the foreman answers with an error is sent. */
const MAX_UPDATE_ATTEMPTS = 4;
/** How long pending requests may wait for ::stop::. */
const STOP_MS = 5_000;

type PollResult = readonly Task[] | "stop" | undefined;

export class PollingTransport implements Transport {
  readonly #options: PollingTransportOptions;
  /** Aborted when no more requests, and when no more updates, are sent. */
  readonly #pollAbort = new AbortController();
  readonly #updateAbort = new AbortController();
  /** By job and task: the slots that wait for its end. */
  readonly #endWaiters = new Map<string, ((update: Update) => void)[]>();
  #failures = 0;
  #leaving = false;

  constructor(options: PollingTransportOptions) {
    this.#options = options;
    const loops = Array.from({ length: options.slots }, () => this.#loop());
    void Promise.all(loops).then(() => options.onFinished());
  }

  get joined(): boolean {
    return this.#options.http.registration !== undefined && this.#failures === 0;
  }

  sendUpdates(): void {
    for (const update of this.#options.tasks.updates) {
      const key = pairKey(update);
      for (const resolve of this.#endWaiters.get(key) ?? []) resolve(update);
      this.#endWaiters.delete(key);
    }
  }

  async leave(): Promise<void> {
    this.#leaving = true;
    const accepted = await this.#options.http.requestStop(AbortSignal.timeout(STOP_MS)).catch(() => false);
    // The foreman answers with ::stop::. If it does not, the requests are aborted.
    if (accepted) setTimeout(() => this.#pollAbort.abort(), STOP_MS).unref();
    else this.#pollAbort.abort();
  }

  close(): void {
    this.#leaving = true;
    this.#pollAbort.abort();
    this.#updateAbort.abort();
  }

  async #loop(): Promise<void> {
    let found = await this.#poll();
    while (found !== "stop" && !this.#updateAbort.signal.aborted) {
      const [task] = found ?? [];
      if (task !== undefined && this.#options.tasks.start([task])) {
        const update = await this.#endOf(task);
        found = await this.#sendUpdate(update);
        this.#options.tasks.acknowledged(update);
        continue;
      }
      if (this.#leaving) return;
      // Undefined where a pause was made already.
      if (found !== undefined) await pause(PAUSE_MS, this.#pollAbort.signal);
      found = await this.#poll();
    }
  }

  #endOf(task: Task): Promise<Update> {
    const key = pairKey(pairOf(task));
    return new Promise((resolve) => this.#endWaiters.set(key, [...(this.#endWaiters.get(key) ?? []), resolve]));
  }

  async #poll(): Promise<PollResult> {
    return this.#readAnswer(await this.#post("job/request", () => ({ nproc: 1 }), this.#pollAbort.signal));
  }

  /** Until the foreman accepts it, or clearly refuses it. */
  async #sendUpdate({ jobId, task, success, status }: Update): Promise<PollResult> {
    const { signal } = this.#updateAbort;
    const body = () => ({ job_id: jobId, task, success, status, ...(this.#leaving ? {} : { newjob: { nproc: 1 } }) });
    for (let count = 0; !signal.aborted; ) {
      const answer = await this.#post("job/update", body, signal);
      if (answer?.status === 200) return this.#readAnswer(answer);
      if (answer === undefined) continue;
      if (answer.status === 400 || ++count >= MAX_UPDATE_ATTEMPTS) {
        this.#options.log.error({ job: jobId, task }, `the foreman refuses the result with ${answer.status}: given up`);
        return undefined;
      }
      await pause(this.#options.firstDelayMs ?? FIRST_DELAY_MS, signal);
    }
    return undefined;
  }

  #readAnswer(answer: HttpResponse | undefined): PollResult {
    if (answer === undefined) return undefined;
    if (answer.status !== 200) return [];
    const given = readTasks(answer.text);
    if (given !== undefined && given.length > 1 && given !== "stop")
      this.#options.log.warn({}, "the foreman gave more than it was asked for");
    if (given === undefined) this.#options.log.warn({}, "the foreman's answer is no list of tasks");
    return given ?? [];
  }

  /** Undefined where no answer came; then a pause has been made. */
  async #post(path: string, body: () => object, signal: AbortSignal): Promise<HttpResponse | undefined> {
    const { http, onJoined, onRefused, onUnreachable, firstDelayMs } = this.#options;
    try {
      await http.hello(signal);
      onJoined();
      const answer = await http.post(path, body(), signal);
      this.#failures = 0;
      // It no longer knows this worker: /hello is sent again.
      if (answer.status === 401 || answer.status === 403) http.forget();
      return answer;
    } catch (cause) {
      if (signal.aborted) return undefined;
      const error = asLaboroError(cause);
      if (isFinal(error, http.registration !== undefined)) {
        this.close();
        onRefused(error);
        return undefined;
      }
      onUnreachable(error, ++this.#failures);
      await pause(retryDelay(firstDelayMs, this.#failures - 1), signal);
      return undefined;
    }
  }
}

/** So long, or until the signal comes. */
const pause = (ms: number, signal: AbortSignal): Promise<void> => delay(ms, undefined, { signal }).catch(() => {});

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
