/** Schedules: when each runs, how its last run went, and what can be done about it. */
import { type Answer, ask } from "../api.js";
import { h, set, setChildren, setText } from "../dom.js";
import { ago, count, duration } from "../format.js";
import { isAllowed, type PageContext, type PageFactory, runAction } from "../page-context.js";
import { badge, setBadge } from "../parts/badge.js";
import { confirmDialog } from "../parts/confirm-dialog.js";
import { type Column, Table } from "../parts/table.js";
import { address, type Route, withQuery } from "../route.js";

type Schedule = Answer<"schedules">["schedules"][number];

const PAGE = 100;

const timeIn = (at: number, timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone): string =>
  `${new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "medium" }).format(at)} ${timeZone}`;

const whenText = ({ cron, timeZone = "UTC", everyMs }: Schedule): string =>
  everyMs === undefined ? `${cron} ${timeZone}` : `every ${duration(everyMs)}`;

const COLUMNS: readonly Column<Schedule>[] = [
  { head: "Schedule", make: ({ name }) => h("b", {}, name), show: () => {} },
  {
    head: "State",
    make: ({ state }) => badge(state),
    show: (cell, { state }) => {
      if (cell.firstElementChild !== null) setBadge(cell.firstElementChild, state);
    },
  },
  {
    head: "Command",
    minor: true,
    wide: true,
    show: (cell, { job }) => {
      setText(cell, job.summary);
      cell.title = job.summary;
    },
  },
  { head: "When", minor: true, show: (cell, one) => setText(cell, whenText(one)) },
  {
    head: "Next run",
    number: true,
    show: (cell, { nextAt, timeZone }) => {
      setText(cell, nextAt === undefined ? "–" : `in ${duration(Math.max(0, nextAt - Date.now()))}`);
      cell.title = nextAt === undefined ? "" : timeIn(nextAt, timeZone);
    },
  },
  {
    head: "Last run",
    number: true,
    minor: true,
    show: (cell, { last, timeZone }) => {
      setText(cell, last === undefined ? "–" : `${ago(last.at)}${last.skipped === undefined ? "" : ", skipped"}`);
      cell.title =
        last === undefined ? "" : [`for ${timeIn(last.due, timeZone)}`, last.message ?? ""].filter(Boolean).join(": ");
      cell.classList.toggle("bad", last?.skipped === "refused");
    },
  },
  {
    head: "Last job",
    number: true,
    show: (cell, { lastJob }) =>
      setChildren(cell, lastJob === undefined ? "–" : h("a", { href: address(["jobs", lastJob]) }, String(lastJob))),
  },
  { head: "Runs", number: true, minor: true, show: (cell, { runs }) => setText(cell, count(runs)) },
  { head: "Skipped", number: true, minor: true, show: (cell, { skipped }) => setText(cell, count(skipped)) },
];

type Action = "scheduleRun" | "schedulePause" | "scheduleResume" | "scheduleRemove";

interface ActionTexts {
  readonly label: string;
  readonly text: string;
  readonly done: (name: string) => string;
}

const ACTIONS: Readonly<Record<Action, ActionTexts>> = {
  scheduleRun: {
    label: "Run",
    text: "A run starts now. The next point in time stays.",
    done: (name) => `a run of ${name} is submitted`,
  },
  schedulePause: {
    label: "Pause",
    text: "It starts no more runs until it is resumed.",
    done: (name) => `schedule ${name} is paused`,
  },
  scheduleResume: {
    label: "Resume",
    text: "It goes on with its next point in time. Runs that it would have had are not made up for.",
    done: (name) => `schedule ${name} is resumed`,
  },
  scheduleRemove: {
    label: "Remove",
    text: "It starts no more runs. The jobs of its runs stay.",
    done: (name) => `schedule ${name} is removed`,
  },
};

async function perform(context: PageContext, action: Action, schedule: string): Promise<void> {
  const { label, text, done } = ACTIONS[action];
  const answer = await confirmDialog({
    title: `${label} schedule ${schedule}?`,
    text,
    confirmLabel: `${label} schedule`,
    destructive: action === "scheduleRemove",
  });
  if (answer !== undefined) await runAction(context, action, { schedule }, () => done(schedule));
}

/** The buttons depend on whether the schedule is paused. */
const actions = (context: PageContext): Column<Schedule> => ({
  head: "Actions",
  make: ({ name }) => {
    const button = ([action, { label }]: [string, ActionTexts]): HTMLElement =>
      h(
        "button",
        {
          class: "button",
          "data-action": action,
          "aria-label": `${label} ${name}`,
          onclick: () => void perform(context, action as Action, name),
        },
        label,
      );
    return h("div", { class: "actions" }, ...Object.entries(ACTIONS).map(button));
  },
  show: (cell, { state }) => {
    for (const button of cell.querySelectorAll("button")) {
      const { action } = button.dataset;
      const fits = action === "schedulePause" ? state === "active" : action !== "scheduleResume" || state === "paused";
      set(button, "hidden", !fits);
    }
  },
});

export const schedulesPage: PageFactory = (first, context) => {
  let route: Route = first;
  const columns = isAllowed(context, "scheduleRun") ? [...COLUMNS, actions(context)] : COLUMNS;
  const empty = "There are no schedules. laboro schedule add makes one.";
  const table = new Table<Schedule>("Schedules", columns, ({ name }) => name, empty);
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  return {
    title: "Schedules",
    element: h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Schedules")),
      h("section", { class: "panel flush" }, table.element),
      pages,
    ),
    onNavigate: (next) => {
      if (next.path.length !== 1 || next.path[0] !== "schedules") return false;
      route = next;
      return true;
    },
    refresh: async (signal) => {
      const after = route.query.get("after") ?? "";
      const which = { limit: PAGE, ...(after === "" ? {} : { after }) };
      const { schedules, next } = await ask("schedules", which, { signal, shared: true });
      table.update(schedules);
      setChildren(
        pages,
        after !== "" && h("a", { class: "button", href: withQuery(route, { after: undefined }) }, "First"),
        next !== undefined && h("a", { class: "button", href: withQuery(route, { after: next }) }, "More"),
      );
      set(pages, "hidden", pages.childElementCount === 0);
    },
  };
};
