/**
 * A worker that requests its tasks over HTTP, one request at a time for each slot.
 *
 *   polling    /job/request waits at the foreman for a task
 *   running    the task that came runs
 *   updating   /job/update is repeated until it is answered; it also requests the next task
 *   ended      ::stop:: came, or the worker leaves
 */
import { pause } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import { pairKey, pairOf, RUNNING, type Task, type Update } from "../messages.js";
import { type ForemanHttp, type HttpResponse, parseJson } from "./foreman-http.js";
import { FIRST_DELAY_MS, isFinal, retryDelay, type Transport, type TransportOptions } from "./persistent-transport.js";

interface PollingTransportOptions extends TransportOptions {
  readonly http: ForemanHttp;
  readonly slots: number;
}

/** After an answer without a task, which the original gives after an internal error. */
const PAUSE_MS = 5_000;
/** How often an update is sent that the foreman answers with an error. */
const MAX_UPDATE_ATTEMPTS = 4;
/** How long requests may wait for ::stop::. */
const STOP_MS = 5_000;

type PollResult = readonly Task[] | "stop" | undefined;

export class PollingTransport implements Transport {
  readonly #options: PollingTransportOptions;
  readonly #pollAbort = new AbortController();
  readonly #updateAbort = new AbortController();
  /** The slots that wait for the end of a task. A foreman may assign one task to two slots. */
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
      // After a request without a reply there was already a pause.
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

  /** Repeats the update until the foreman accepts or refuses it. */
  async #sendUpdate({ jobId, task, success, status }: Update): Promise<PollResult> {
    const { signal } = this.#updateAbort;
    const body = () => ({ job_id: jobId, task, success, status, ...(this.#leaving ? {} : { newjob: { nproc: 1 } }) });
    for (let count = 0; !signal.aborted; ) {
      const answer = await this.#post("job/update", body, signal);
      if (answer?.status === 200) return this.#readAnswer(answer);
      if (answer === undefined) continue;
      if (answer.status === 400 || ++count >= MAX_UPDATE_ATTEMPTS) {
        this.#options.log.error(
          { job: jobId, task },
          `the foreman refuses the result with ${answer.status}, it is dropped`,
        );
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
    const { log } = this.#options;
    if (given === undefined) log.warn({}, "the foreman's answer is no list of tasks: ignored");
    else if (given !== "stop" && given.length > 1) log.warn({}, "the foreman sent several tasks: all but one ignored");
    return given ?? [];
  }

  /** Undefined after a failure and a pause. */
  async #post(path: string, body: () => object, signal: AbortSignal): Promise<HttpResponse | undefined> {
    const { http, onJoined, onRefused, onUnreachable, firstDelayMs } = this.#options;
    try {
      await http.hello(signal);
      onJoined();
      const answer = await http.post(path, body(), signal);
      this.#failures = 0;
      // The foreman does not know the cookie any more: /hello is sent again.
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

/** Undefined for anything but a list of tasks. */
function readTasks(text: string): readonly Task[] | "stop" | undefined {
  const list = parseJson(text);
  if (list === null) return [];
  if (!Array.isArray(list)) return undefined;
  const tasks: Task[] = [];
  for (const one of list as Record<string, unknown>[]) {
    if (one?.name === "::stop::" && one.task === -1) return "stop";
    const { task, job_id: jobId, num_tasks: numTasks = 0 } = one ?? {};
    if (typeof task !== "number" || typeof jobId !== "number" || typeof numTasks !== "number") return undefined;
    const text = (key: string): string => (typeof one[key] === "string" ? one[key] : "");
    const dirs = { workingDir: text("working_dir"), loggingDir: text("logging_dir") };
    tasks.push({
      task,
      job: { jobId, name: text("name"), numTasks, ...dirs, command: text("command"), status: RUNNING },
    });
  }
  return tasks;
}
