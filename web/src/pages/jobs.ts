/** The list of jobs, filtered by the query of the address. */
import { ask } from "../api.js";
import { h, set, setChildren } from "../dom.js";
import { plural } from "../format.js";
import type { PageFactory } from "../page-context.js";
import { jobTable } from "../parts/job-table.js";
import { type BulkAction, forEach, Selection } from "../parts/selection.js";
import { numberIn, type Route, withQuery } from "../route.js";

const STATES = [
  "open",
  "running",
  "waiting",
  "delayed",
  "held",
  "blocked",
  "failed",
  "succeeded",
  "cancelled",
] as const;
type State = (typeof STATES)[number];
const PAGE = 50;
/** While the user is typing. */
const DEBOUNCE_MS = 250;

export const jobsPage: PageFactory = (first, context) => {
  let route = first;
  const chips = h("nav", { class: "chips", "aria-label": "State" });
  const name = h("input", {
    type: "search",
    placeholder: "Name, * for any text",
    "aria-label": "Name",
    class: "search",
  });
  const pool = h("input", { type: "search", placeholder: "Pool", "aria-label": "Pool", class: "search short" });
  const selection = new Selection<number>(context, "job", ACTIONS);
  const table = jobTable("Jobs", "No jobs match.", context.permissions.role === "read" ? undefined : selection);
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  const element = h(
    "div",
    {},
    h("div", { class: "title" }, h("h1", {}, "Jobs")),
    h("div", { class: "filters" }, chips, h("span", { class: "gap" }), name, pool),
    selection.element,
    h("section", { class: "panel flush" }, table.element),
    pages,
  );
  debounceInput(name, () => context.navigate(withQuery(route, { name: name.value, before: undefined }), true));
  debounceInput(pool, () => context.navigate(withQuery(route, { pool: pool.value, before: undefined }), true));
  const showFilters = (): void => {
    setChildren(chips, ...["all", ...STATES].map((one) => chip(route, one)));
    if (document.activeElement !== name) name.value = route.query.get("name") ?? "";
    if (document.activeElement !== pool) pool.value = route.query.get("pool") ?? "";
  };
  showFilters();
  return {
    title: "Jobs",
    element,
    onNavigate: (next) => {
      if (next.path.length !== 1 || next.path[0] !== "jobs") return false;
      route = next;
      showFilters();
      return true;
    },
    refresh: async (signal) => {
      const asked = route;
      const { jobs, next } = await ask("jobs", inputFrom(asked), { signal, shared: true });
      if (asked !== route) return;
      table.update(jobs, isFiltered(asked) ? "No jobs match." : "No job has been submitted yet.");
      setChildren(
        pages,
        asked.query.has("before") &&
          h("a", { class: "button", href: withQuery(asked, { before: undefined }) }, "Newest"),
        next !== undefined && h("a", { class: "button", href: withQuery(asked, { before: next }) }, "Older"),
      );
      set(pages, "hidden", pages.childElementCount === 0);
    },
  };
};

const ACTIONS = actionsOf();

function actionsOf(): BulkAction<number>[] {
  const each = (name: "hold" | "release" | "cancel", done: string) => (jobs: readonly number[]) =>
    forEach(
      jobs,
      (job) => ask(name, { job }),
      (many) => `${plural(many, "job")} ${done}`,
    );
  const rerun = async (jobs: readonly number[]): Promise<string> => {
    let tasks = 0;
    const again = async (job: number): Promise<void> => {
      tasks += (await ask("rerun", { job })).count;
    };
    return forEach(jobs, again, (many) => `${plural(tasks, "task")} of ${plural(many, "job")} will run again`);
  };
  return [
    {
      label: "Hold",
      text: "Waiting tasks are not started until the jobs are released.",
      perform: each("hold", "held"),
    },
    { label: "Release", text: "Their waiting tasks may start again.", perform: each("release", "released") },
    { label: "Rerun", text: "Tasks that failed or were cancelled will run again.", perform: rerun },
    {
      label: "Cancel",
      text: "Waiting tasks will not run, and those at workers will be stopped. Ended tasks do not change.",
      destructive: true,
      perform: each("cancel", "cancelled"),
    },
  ];
}

function chip(route: Route, state: string): HTMLAnchorElement {
  const now = route.query.get("state") ?? "all";
  const href = withQuery(route, { state: state === "all" ? undefined : state, before: undefined });
  return h("a", { href, "aria-current": now === state ? "true" : undefined }, state);
}

const isFiltered = ({ query }: Route): boolean => query.has("state") || query.has("name") || query.has("pool");

/** A name without * matches anywhere in a job's name. */
function inputFrom({ query }: Route) {
  const state = STATES.filter((one): one is State => query.get("state")?.split(",").includes(one) === true);
  const name = query.get("name") ?? "";
  const pool = query.get("pool") ?? "";
  const before = numberIn(query.get("before"));
  return {
    limit: PAGE,
    ...(state.length === 0 ? {} : { state }),
    ...(name === "" ? {} : { name: name.includes("*") ? name : `*${name}*` }),
    ...(pool === "" ? {} : { pool }),
    ...(before === undefined ? {} : { before }),
  };
}

export function debounceInput(input: HTMLInputElement, act: () => void): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(act, DEBOUNCE_MS);
  });
}
