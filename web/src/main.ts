/** The dashboard: finds out who looks, shows the page of the address, and changes it when the address does. */
import "../style/base.css";
import "../style/parts.css";
import "../style/pages.css";
import { ask, Refused } from "./api.js";
import { type Desk, type MakePage, may, type Page, wordsFor } from "./desk.js";
import { h } from "./dom.js";
import { listenForKeys, showKeys } from "./keys.js";
import { brokersPage } from "./pages/brokers.js";
import { configPage } from "./pages/config.js";
import { conversationsPage } from "./pages/conversations.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { notFoundPage } from "./pages/not-found.js";
import { overviewPage } from "./pages/overview.js";
import { servicesPage } from "./pages/services.js";
import { workersPage } from "./pages/workers.js";
import { type Place, placeOf, ROOT } from "./place.js";
import { Pulse } from "./pulse.js";
import { Shell } from "./shell.js";

const PAGES: Readonly<Record<string, MakePage>> = {
  overview: overviewPage,
  jobs: (place, desk) => (place.path.length > 1 ? jobPage : jobsPage)(place, desk),
  workers: workersPage,
  services: servicesPage,
  brokers: brokersPage,
  config: configPage,
  conversations: conversationsPage,
};

async function start(): Promise<void> {
  const access = await ask("access", {});
  let shell: Shell | undefined;
  let open: { readonly page: Page; readonly pulse: Pulse } | undefined;

  const desk: Desk = {
    access,
    go: (address, replace = false) => {
      if (replace) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
      show();
    },
    say: (text, bad = false) => {
      shell?.say(text, bad);
      open?.pulse.now();
    },
    again: () => open?.pulse.now(),
  };
  const allowed = (needs: string | undefined): boolean => needs === undefined || may(desk, needs);
  shell = new Shell(desk, () => showKeys(allowed));

  /** A cookie that has run out is told by the page for who has not come in. */
  function reached(cause: unknown): void {
    if (cause instanceof Refused && cause.status === 401) location.assign("/");
    else shell?.reached(cause);
  }

  function show(): void {
    const place = placeOf(location);
    const name = place.path[0] ?? "overview";
    shell?.at(name);
    if (open?.page.moved?.(place) === true) {
      open.pulse.now();
      return;
    }
    open?.pulse.stop();
    open?.page.close?.();
    const page = pageFor(name, place);
    document.title = `${page.title} · laboro`;
    shell?.main.replaceChildren(page.element);
    window.scrollTo(0, 0);
    // Who does not see the page hears that it is another.
    if (open !== undefined) shell?.main.focus({ preventScroll: true });
    open = { page, pulse: new Pulse((signal) => page.look(signal), reached, page.everyMs) };
  }

  function pageFor(name: string, place: Place): Page {
    const make = Object.hasOwn(PAGES, name) ? PAGES[name] : undefined;
    return (make ?? notFoundPage)(place, desk);
  }

  window.addEventListener("popstate", show);
  document.addEventListener("click", (event) => {
    const to = inside(event);
    if (to === undefined) return;
    event.preventDefault();
    desk.go(to);
  });
  listenForKeys((address) => desk.go(address), allowed);
  shell.broker((await ask("overview", {}, { shared: true })).status.version);
  show();
}

/** The address that a click leads to, where it is one of ours and nothing else is meant by it. */
function inside(event: MouseEvent): string | undefined {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey)
    return undefined;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  const href = link?.getAttribute("href") ?? "";
  return href.startsWith(`${ROOT}/`) ? href : undefined;
}

start().catch((cause: unknown) => {
  if (cause instanceof Refused && cause.status === 401) location.assign("/");
  else
    document.body.append(
      h("p", { class: "failed-start", role: "alert" }, `This page cannot be shown: ${wordsFor(cause)}`),
    );
});
