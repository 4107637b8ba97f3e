/** One task: its state and the reason, its result and earlier attempts, its output, and actions on it. */
import { taskNumber } from "../../../src/model/task-numbers.js";
import { type Answer, ask, decodeText } from "../api.js";
import { type Child, h, set, setChildren, setText } from "../dom.js";
import { count, duration, moment, sentence, size } from "../format.js";
import { isAllowed, type PageContext, runAction } from "../page-context.js";
import { address } from "../route.js";
import { badge, setBadge } from "./badge.js";
import { confirmDialog } from "./confirm-dialog.js";
import { icon } from "./icons.js";
import { commandOf } from "./job-facts.js";
import { OutputView } from "./output-view.js";
import { describeOutcome } from "./task-list.js";

type Task = Answer<"task">;
type End = NonNullable<Task["result"]>;

export class TaskPanel {
  readonly element: HTMLElement;
  readonly index: number;
  readonly #context: PageContext;
  readonly #job: number;
  readonly #jobCommand: string;
  /** JOB.TASK, as the command line takes it. */
  readonly #name: string;
  readonly #state = badge("waiting");
  readonly #reason = h("p", { class: "reason" });
  readonly #facts = h("dl", { class: "facts" });
  readonly #entry = h("p", { class: "entry mono", hidden: true });
  readonly #command = h("pre", { class: "recipe", hidden: true, tabindex: 0, "aria-label": "Command of the task" });
  readonly #valueTitle = h("h3", {}, "Result");
  readonly #value = h("pre", { class: "recipe", tabindex: 0, "aria-label": "What the handler returned or threw" });
  readonly #valueBox = h("div", { class: "value", hidden: true }, this.#valueTitle, this.#value);
  readonly #actions = h("div", { class: "actions" });
  readonly #attempts = h("nav", { class: "chips", "aria-label": "Attempts", hidden: true });
  readonly #output: OutputView;
  #attempt: number | undefined;
  #chosen: number | undefined;
  #shown = "";
  #last: { readonly attempt: number; readonly text: string } | undefined;

  constructor(context: PageContext, job: Answer<"job">, index: number, jobAddress: () => string) {
    const number = taskNumber(job, index);
    this.#context = context;
    this.#job = job.id;
    this.#jobCommand = commandOf(job);
    this.index = index;
    this.#name = `${job.id}.${number}`;
    this.#output = new OutputView(context, job.id, index, this.#name);
    // The link keeps the current filters of the list.
    const toJob = (): void => closeLink.setAttribute("href", jobAddress());
    const closeLink = h(
      "a",
      { class: "button quiet", href: jobAddress(), "aria-label": "Close", onclick: toJob },
      icon("close"),
    );
    this.element = h(
      "section",
      { class: "task panel", "aria-label": `Task ${number}` },
      h(
        "div",
        { class: "title" },
        h("h2", {}, `Task ${this.#name}`),
        this.#state,
        h("span", { class: "gap" }),
        this.#actions,
        closeLink,
      ),
      this.#reason,
      this.#entry,
      this.#command,
      this.#facts,
      this.#attempts,
      this.#valueBox,
      this.#output.element,
    );
    // Until the task is known to have been started.
    this.#output.element.hidden = true;
    if (job.hasEntries) void this.#readEntry();
  }

  close(): void {
    this.#output.close();
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const task = await ask("task", { job: this.#job, index: this.index }, { signal, shared: true });
    setBadge(this.#state, task.state);
    setText(this.#reason, task.state === "waiting" ? `Why? ${sentence(task.reason)}` : sentence(task.reason));
    // A command without placeholders is already shown above the list.
    set(this.#command, "hidden", task.command === undefined || task.command === this.#jobCommand);
    setText(this.#command, task.command ?? "");
    setChildren(this.#facts, ...factsOf(task));
    this.#showAttempts(task);
    void this.#showValue(task);
    this.#showActions(task);
    // A task that was never assigned has no output.
    set(this.#output.element, "hidden", task.attempt === 0);
    if (task.attempt === 0) return;
    if (this.#attempt === task.attempt && this.#shown === task.state) return;
    const other = this.#attempt !== task.attempt;
    this.#attempt = task.attempt;
    this.#shown = task.state;
    if (other && this.#chosen === undefined) this.#readOutput(task);
  }

  #readOutput(task: Task, attempt?: number): void {
    const found = endOf(task, attempt ?? task.attempt);
    this.#output.read(attempt, found === undefined ? 0 : OutputView.tailOf(found.outputBytes));
  }

  /** What the handler of a typed task returned, or the stack of what it threw. A program has neither. */
  async #showValue(task: Task): Promise<void> {
    const chosen = this.#chosen;
    const end = endOf(task, chosen ?? task.attempt);
    const text = end === undefined ? "" : await this.#valueOf(end).catch(() => "");
    if (chosen !== this.#chosen) return;
    set(this.#valueBox, "hidden", text === "");
    if (end === undefined || text === "") return;
    setText(this.#valueTitle, end.state === "succeeded" ? "Result" : "Error");
    setText(this.#value, end.state === "succeeded" ? indented(text) : stackOf(text));
  }

  /** The value of the last attempt is another request, made once. */
  async #valueOf({ attempt, value, valueBytes = 0 }: End): Promise<string> {
    if (value !== undefined) return decodeText(value);
    if (valueBytes === 0) return "";
    if (this.#last?.attempt === attempt) return this.#last.text;
    const { tasks } = await ask("tasks", { job: this.#job, from: this.index, limit: 1, values: true });
    const [found] = tasks;
    if (found?.attempt !== attempt || found.value === undefined) return "";
    this.#last = { attempt, text: decodeText(found.value) };
    return this.#last.text;
  }

  async #readEntry(): Promise<void> {
    const { entries } = await ask("entries", { job: this.#job, from: this.index, limit: 1 }).catch(() => ({
      entries: [],
    }));
    const [entry] = entries;
    if (entry === undefined) return;
    set(this.#entry, "hidden", false);
    setChildren(this.#entry, h("span", { class: "muted" }, "entry "), decodeText(entry));
  }

  #showAttempts(task: Task): void {
    const attempts = [
      ...task.earlierAttempts.map(({ attempt }) => attempt),
      ...(task.attempt > 0 ? [task.attempt] : []),
    ];
    const all = [...new Set(attempts)];
    set(this.#attempts, "hidden", all.length < 2);
    const now = this.#chosen ?? task.attempt;
    setChildren(
      this.#attempts,
      ...all.map((attempt) => {
        const end = task.earlierAttempts.find((one) => one.attempt === attempt);
        const label = `attempt ${attempt}${end === undefined ? "" : `: ${describeOutcome(end) || end.state}, ${end.worker}`}`;
        const choose = (): void => {
          this.#chosen = attempt === task.attempt ? undefined : attempt;
          this.#readOutput(task, attempt);
          this.#showAttempts(task);
          void this.#showValue(task);
        };
        return h("button", { class: "chip", "aria-pressed": String(attempt === now), onclick: choose }, label);
      }),
    );
  }

  #showActions(task: Task): void {
    const open = task.state === "waiting" || task.state === "running";
    const wanted = open
      ? isAllowed(this.#context, "cancel")
        ? "cancel"
        : ""
      : task.state !== "succeeded" && isAllowed(this.#context, "rerun")
        ? "rerun"
        : "";
    if (this.#actions.dataset.shown === wanted) return;
    this.#actions.dataset.shown = wanted;
    if (wanted === "") setChildren(this.#actions);
    else if (wanted === "cancel")
      setChildren(
        this.#actions,
        h("button", { class: "button small", onclick: () => void this.#cancel() }, "Cancel task"),
      );
    else
      setChildren(
        this.#actions,
        h("button", { class: "button small", onclick: () => void this.#rerun() }, "Run again"),
      );
  }

  async #cancel(): Promise<void> {
    const name = this.#name;
    const reason = await confirmDialog({
      title: `Cancel task ${name}?`,
      text: "If it runs, its process is stopped. The task ends as cancelled. It can be run again later.",
      confirmLabel: "Cancel task",
      destructive: true,
      reasonLabel: "Reason (optional)",
    });
    if (reason === undefined) return;
    const tasks = [{ first: this.index, last: this.index }];
    const input = { job: this.#job, tasks, ...(reason === "" ? {} : { reason }) };
    await runAction(this.#context, "cancel", input, () => `task ${name} is cancelled`);
  }

  async #rerun(): Promise<void> {
    const input = { job: this.#job, tasks: [{ first: this.index, last: this.index }] };
    await runAction(this.#context, "rerun", input, ({ count: many }) =>
      many === 0 ? "nothing to run again" : `task ${this.#name} runs again`,
    );
  }
}

const endOf = ({ earlierAttempts, result }: Task, attempt: number): End | undefined =>
  [...earlierAttempts, ...(result === undefined ? [] : [result])].find((one) => one.attempt === attempt);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Bytes of a handler are no JSON. */
const indented = (text: string): string => JSON.stringify(parsed(text), undefined, 2) ?? text;

/** Of an error as a worker sends it, with its causes. */
function stackOf(text: string): string {
  const lines: string[] = [];
  for (let error = parsed(text); typeof error === "object" && error !== null; error = "cause" in error && error.cause) {
    const { name, message, stack, code } = error as Readonly<Record<string, unknown>>;
    const known = stack ?? `${name}: ${message}`;
    lines.push(`${lines.length === 0 ? "" : "caused by "}${known}${code === undefined ? "" : `\ncode: ${code}`}`);
  }
  return lines.length === 0 ? text : lines.join("\n");
}

function factsOf({ worker, attempt, result }: Task): Child[] {
  const facts: Child[] = [];
  const add = (name: string, value: Child): void => {
    facts.push(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  };
  if (worker !== undefined) add("Worker", h("a", { href: address(["workers"], { find: worker }) }, worker));
  if (attempt > 0) add("Attempt", count(attempt));
  if (result !== undefined) {
    add("Duration", duration(result.ended - result.started));
    add("Started", moment(result.started));
    add("Ended", moment(result.ended));
    if (result.cpuMs !== undefined) add("CPU", duration(result.cpuMs));
    if (result.peakMemory !== undefined) add("Peak memory", size(result.peakMemory));
    const outcome = describeOutcome(result);
    if (outcome !== "" && result.error === undefined) add("Outcome", outcome);
  }
  return facts;
}
