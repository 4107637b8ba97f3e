/** Allocators: the queue of each, what it does about waiting work, its last allocations and its log. */
import { type Answer, ask } from "../api.js";
import { h, set, setChildren, setText } from "../dom.js";
import { ago, count, duration } from "../format.js";
import { isAllowed, type PageContext, type PageFactory, runAction } from "../page-context.js";
import { badge, setBadge } from "../parts/badge.js";
import { confirmDialog } from "../parts/confirm-dialog.js";
import { type Column, Table } from "../parts/table.js";
import { address } from "../route.js";

type Allocator = Answer<"allocators">["allocators"][number];
type Line = Answer<"allocatorLog">["lines"][number] & { readonly allocator: string };
type Allocation = Allocator["allocations"][number] & { readonly allocator: string };

const COLUMNS: readonly Column<Allocator>[] = [
  { head: "Allocator", make: ({ name }) => h("b", {}, name), show: () => {} },
  {
    head: "State",
    make: ({ state }) => badge(state),
    show: (cell, { state, pausedBy }) => {
      if (cell.firstElementChild !== null) setBadge(cell.firstElementChild, state);
      cell.classList.toggle("bad", pausedBy === "failures");
    },
  },
  { head: "Queued", number: true, show: (cell, { counts }) => setText(cell, count(counts.queued)) },
  { head: "Running", number: true, show: (cell, { counts }) => setText(cell, count(counts.running)) },
  { head: "Most workers", number: true, minor: true, show: (cell, { maxWorkers }) => setText(cell, count(maxWorkers)) },
  { head: "Slots", number: true, minor: true, show: (cell, { slots }) => setText(cell, count(slots)) },
  { head: "Time", number: true, minor: true, show: (cell, { timeLimitMs }) => setText(cell, duration(timeLimitMs)) },
  { head: "What it does", wide: true, show: (cell, { status }) => setText(cell, status) },
];

const ALLOCATION_COLUMNS: readonly Column<Allocation>[] = [
  { head: "Allocation", make: ({ allocator, number }) => h("b", {}, `${allocator}.${number}`), show: () => {} },
  {
    head: "State",
    make: ({ state }) => badge(state),
    show: (cell, { state, failed }) => {
      if (cell.firstElementChild !== null) setBadge(cell.firstElementChild, failed === true ? "failed" : state);
    },
  },
  { head: "Job", number: true, show: (cell, { id }) => setText(cell, id ?? "–") },
  { head: "Asked", number: true, minor: true, show: (cell, { asked }) => setText(cell, ago(asked)) },
  {
    head: "Ran",
    number: true,
    minor: true,
    show: (cell, { started, ended = Date.now() }) =>
      setText(cell, started === undefined ? "–" : duration(Math.max(0, ended - started))),
  },
  {
    head: "Workers",
    show: (cell, { workers }) =>
      setChildren(cell, ...workers.map((name) => h("a", { href: address(["workers"], { find: name }) }, `${name} `))),
  },
  { head: "Reason", wide: true, show: (cell, { reason = "" }) => setText(cell, reason) },
];

const LINE_COLUMNS: readonly Column<Line>[] = [
  { head: "When", show: (cell, { at }) => setText(cell, ago(at)) },
  {
    head: "Allocation",
    show: (cell, { allocator, allocation }) =>
      setText(cell, allocation === undefined ? allocator : `${allocator}.${allocation}`),
  },
  { head: "Line", show: (cell, { kind }) => setText(cell, kind) },
  { head: "What", wide: true, show: (cell, { text }) => setText(cell, text) },
];
const SHOWN_LINES = 50;

const ACTIONS = {
  allocatorPause: {
    label: "Pause",
    text: "It asks for nothing more, and what it has in the queue is cancelled.",
    done: "paused",
  },
  allocatorResume: { label: "Resume", text: "It asks again at once, also after failures.", done: "resumed" },
  allocatorRemove: {
    label: "Remove",
    text: "What it has in the queue is cancelled. Allocations that run end by themselves.",
    done: "removed",
  },
} as const;
type Action = keyof typeof ACTIONS;

async function perform(context: PageContext, action: Action, allocator: string): Promise<void> {
  const { label, text, done } = ACTIONS[action];
  const answer = await confirmDialog({
    title: `${label} allocator ${allocator}?`,
    text,
    confirmLabel: `${label} allocator`,
    destructive: action === "allocatorRemove",
  });
  if (answer !== undefined) await runAction(context, action, { allocator }, () => `allocator ${allocator} is ${done}`);
}

const actions = (context: PageContext): Column<Allocator> => ({
  head: "Actions",
  make: ({ name }) => {
    const button = ([action, { label }]: [string, { readonly label: string }]): HTMLElement => {
      const onclick = (): void => void perform(context, action as Action, name);
      return h("button", { class: "button", "data-action": action, "aria-label": `${label} ${name}`, onclick }, label);
    };
    return h("div", { class: "actions" }, ...Object.entries(ACTIONS).map(button));
  },
  show: (cell, { state, pausedBy }) => {
    for (const button of cell.querySelectorAll("button")) {
      const { action } = button.dataset;
      const fits =
        action === "allocatorPause" ? pausedBy !== "user" : action !== "allocatorResume" || state !== "active";
      set(button, "hidden", !fits);
    }
  },
});

export const allocatorsPage: PageFactory = (_, context) => {
  const columns = isAllowed(context, "allocatorPause") ? [...COLUMNS, actions(context)] : COLUMNS;
  const none = "There are no allocators. laboro alloc add makes one.";
  const table = new Table<Allocator>("Allocators", columns, ({ name }) => name, none);
  const key = ({ allocator, number }: Allocation): string => `${allocator}.${number}`;
  const allocations = new Table<Allocation>("Allocations", ALLOCATION_COLUMNS, key, "Nothing has been asked for.");
  const place = ({ allocator, at, kind, allocation, text }: Line): string =>
    [allocator, at, kind, allocation, text].join();
  const log = new Table<Line>("Log", LINE_COLUMNS, place, "Nothing has happened.");
  return {
    title: "Allocators",
    element: h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Allocators")),
      h("section", { class: "panel flush" }, table.element),
      h("h2", {}, "Allocations"),
      h("section", { class: "panel flush" }, allocations.element),
      h("h2", {}, "Log"),
      h("section", { class: "panel flush" }, log.element),
    ),
    refresh: async (signal) => {
      const { allocators } = await ask("allocators", {}, { signal, shared: true });
      // One that was removed meanwhile has no log.
      const logs = allocators.map(({ name: allocator }) =>
        ask("allocatorLog", { allocator }, { signal }).then(
          ({ lines }) => lines.map((line) => ({ ...line, allocator })),
          () => [],
        ),
      );
      const lines = (await Promise.all(logs)).flat().sort((a, b) => b.at - a.at);
      log.update(lines.slice(0, SHOWN_LINES));
      table.update(allocators);
      allocations.update(
        allocators.flatMap(({ name, allocations: all }) =>
          all.map((one) => ({ ...one, allocator: name })).sort((a, b) => b.number - a.number),
        ),
      );
    },
  };
};
