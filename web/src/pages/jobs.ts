/** The list of jobs, filtered by what stands in the address. */
import { ask } from "../api.js";
import type { MakePage } from "../desk.js";
import { fill, h, set } from "../dom.js";
import { jobTable } from "../parts/job-table.js";
import { changed, numberIn, type Place } from "../place.js";

const STATES = ["open", "running", "waiting", "held", "blocked", "failed", "succeeded", "cancelled"] as const;
type State = (typeof STATES)[number];
const PAGE = 50;
/** While somebody still writes. */
const PATIENCE_MS = 250;

export const jobsPage: MakePage = (first, desk) => {
  let place = first;
  const chips = h("nav", { class: "chips", "aria-label": "State" });
  const name = h("input", {
    type: "search",
    placeholder: "Name, * for any text",
    "aria-label": "Name",
    class: "search",
  });
  const pool = h("input", { type: "search", placeholder: "Pool", "aria-label": "Pool", class: "search short" });
  const table = jobTable("Jobs", "No job is like that.");
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  const element = h(
    "div",
    {},
    h("div", { class: "title" }, h("h1", {}, "Jobs")),
    h("div", { class: "filters" }, chips, h("span", { class: "gap" }), name, pool),
    h("section", { class: "panel flush" }, table.element),
    pages,
  );
  later(name, () => desk.go(changed(place, { name: name.value, before: undefined }), true));
  later(pool, () => desk.go(changed(place, { pool: pool.value, before: undefined }), true));
  const showFilters = (): void => {
    fill(chips, ...["all", ...STATES].map((one) => chip(place, one)));
    if (document.activeElement !== name) name.value = place.query.get("name") ?? "";
    if (document.activeElement !== pool) pool.value = place.query.get("pool") ?? "";
  };
  showFilters();
  return {
    title: "Jobs",
    element,
    moved: (next) => {
      if (next.path.length !== 1 || next.path[0] !== "jobs") return false;
      place = next;
      showFilters();
      return true;
    },
    look: async (signal) => {
      const asked = place;
      const { jobs, next } = await ask("jobs", inputFrom(asked), { signal, shared: true });
      if (asked !== place) return;
      table.update(jobs, isFiltered(asked) ? "No job is like that." : "No job has been submitted yet.");
      fill(
        pages,
        asked.query.has("before") && h("a", { class: "button", href: changed(asked, { before: undefined }) }, "Newest"),
        next !== undefined && h("a", { class: "button", href: changed(asked, { before: next }) }, "Older"),
      );
      set(pages, "hidden", pages.childElementCount === 0);
    },
  };
};

function chip(place: Place, state: string): HTMLAnchorElement {
  const now = place.query.get("state") ?? "all";
  const href = changed(place, { state: state === "all" ? undefined : state, before: undefined });
  return h("a", { href, "aria-current": now === state ? "true" : undefined }, state);
}

const isFiltered = ({ query }: Place): boolean => query.has("state") || query.has("name") || query.has("pool");

/** A name without * is looked for anywhere in a job's name. */
function inputFrom({ query }: Place) {
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

export function later(input: HTMLInputElement, act: () => void): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(act, PATIENCE_MS);
  });
}
