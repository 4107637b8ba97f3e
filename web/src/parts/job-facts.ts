/** What a job is: its command, its properties, the jobs around it, and how fast it goes. */

import { shellWord } from "../../../src/base/format.js";
import { haltRuleOf } from "../../../src/model/job.js";
import { type Answer, ask, decodeText, type JsonBytes } from "../api.js";
import { type Child, h, setText } from "../dom.js";
import { ago, amountOf, count, duration, moment, rate, size } from "../format.js";
import { errorMessage } from "../page-context.js";
import { address } from "../route.js";

type Job = Answer<"job">;

const RATE_WINDOW_MS = 60_000;
const MIN_RATE_WINDOW_MS = 5_000;
/** The rate at which tasks end: while the page was open, or on average. */
export class RateEstimate {
  readonly #samples: { readonly at: number; readonly ended: number }[] = [];
  /** Of the job's first task; 0 while it is not known. */
  firstStart = 0;

  add({ counters }: Job): void {
    this.#samples.push({ at: Date.now(), ended: endedCount(counters) });
    while ((this.#samples[0]?.at ?? 0) < Date.now() - RATE_WINDOW_MS) this.#samples.shift();
  }

  perSecond({ counters, ended: endedAt }: Job): number | undefined {
    const [first] = this.#samples;
    const last = this.#samples.at(-1);
    if (endedAt === undefined && first !== undefined && last !== undefined && last.at - first.at >= MIN_RATE_WINDOW_MS)
      return (1000 * (last.ended - first.ended)) / (last.at - first.at);
    const ms = (endedAt ?? Date.now()) - this.firstStart;
    return this.firstStart === 0 || ms <= 0 ? undefined : (1000 * endedCount(counters)) / ms;
  }
}

const endedCount = ({ succeeded, failed, cancelled }: Job["counters"]): number => succeeded + failed + cancelled;

/** As it could be typed in a shell, with its placeholders. */
export function commandOf({ recipe, service = "" }: Job): string {
  const words = (all: readonly JsonBytes[]): string => all.map((word) => shellWord(decodeText(word))).join(" ");
  if (recipe.kind === "call") return `call ${recipe.service ?? service}`;
  if (recipe.kind === "script") return [`script${recipe.type}`, words(recipe.args ?? [])].join(" ").trimEnd();
  return recipe.shell === true ? decodeText(recipe.argv?.at(-1) ?? "") : words(recipe.argv ?? []);
}

/** The contents of a `details`: the script is read when it is opened. */
export function scriptOf(job: number, bytes = 0): readonly HTMLElement[] {
  const text = h("pre", { class: "recipe", tabindex: 0, "aria-label": "Script" });
  const read = async (): Promise<void> => {
    const { recipe } = await ask("job", { job, content: true });
    setText(text, decodeText(recipe.content ?? ""));
  };
  const onclick = (): void =>
    void (text.textContent === "" && read().catch((cause) => setText(text, errorMessage(cause))));
  return [h("summary", { onclick }, `Script, ${size(bytes)}`), text];
}

const jobLinks = (ids: readonly number[]): Child =>
  h("span", {}, ...ids.flatMap((id, at) => [at > 0 ? ", " : "", h("a", { href: address(["jobs", id]) }, `job ${id}`)]));

export function factsOf(job: Job, rates: RateEstimate): Child[] {
  const { limits, needs, tags, after, recipe, counters, waitsFor = [], dependents = [] } = job;
  const facts: Child[] = [];
  const add = (name: string, value: Child): void => {
    facts.push(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  };
  add("Tasks", count(job.count));
  add("Submitted", h("span", { title: moment(job.created) }, ago(job.created)));
  const perSecond = rates.perSecond(job);
  if (job.ended !== undefined) add("Duration", duration(job.ended - job.created));
  if (perSecond !== undefined) add("Rate", rate(perSecond));
  if (job.ended === undefined && perSecond !== undefined && perSecond > 0) {
    const leftMs = (1000 * (counters.waiting + counters.running)) / perSecond;
    add("Remaining", h("span", { title: `until ${moment(Date.now() + leftMs)}` }, `about ${duration(leftMs)}`));
  }
  add("Kind", recipe.kind);
  add("Pool", job.poolPaused === true ? `${job.pool}, paused` : job.pool);
  if (job.open === true) add("Open", "takes more tasks");
  if (recipe.dir !== undefined) add("Directory", h("span", { class: "mono" }, decodeText(recipe.dir)));
  for (const name of ["output", "stdout", "stderr"] as const)
    if (recipe[name] !== undefined) add(`Writes ${name} to`, h("span", { class: "mono" }, recipe[name]));
  const names = Object.keys(recipe.env ?? {}).concat(recipe.envNames ?? []);
  if (names.length > 0) add("Environment", h("span", { class: "mono" }, names.sort().join(" ")));
  if (job.service !== undefined) add("Service", job.service);
  if (job.priority !== 0) add("Priority", job.priority);
  const wants = Object.entries(needs).filter(([name, amount]) => name !== "slots" || amount !== 1);
  if (wants.length > 0) add("Needs", wants.map(([name, amount]) => `${amountOf(name, amount)} ${name}`).join(", "));
  if (tags.length > 0) add("Tags", tags.join(", "));
  if (job.state === "delayed" && job.notBefore !== undefined) add("Starts", moment(job.notBefore));
  if (job.key !== undefined) add("Key", job.key);
  if (limits.retries > 0) add("Retries", limits.retries);
  if (limits.timeLimitMs !== undefined) add("Time limit", duration(limits.timeLimitMs));
  const halt = haltRuleOf(limits);
  if (halt !== undefined) add("Halts", `${halt.now === true ? "now" : "soon"}, ${halt.on} ${count(halt.count)}`);
  if (limits.maxRunning !== undefined) add("Max running", count(limits.maxRunning));
  if (limits.named !== undefined) add("Limits", h("a", { href: address(["limits"]) }, limits.named.join(", ")));
  if (recipe.stdinBytes !== undefined) add("Input", size(recipe.stdinBytes));
  if (waitsFor.length > 0) add("Waits for", jobLinks(waitsFor));
  const ended = after.map(({ job: other }) => other).filter((other) => !waitsFor.includes(other));
  if (ended.length > 0) add("Came after", jobLinks(ended));
  if (dependents.length > 0) add("Waiting for it", jobLinks(dependents));
  if (job.reason !== undefined) add("Cancel reason", job.reason);
  return facts;
}
