/** The dashboard: reads the permissions, shows the page of the address, and follows changes of the address. */
import "../style/base.css";
import "../style/parts.css";
import "../style/pages.css";
import { ApiError, ask } from "./api.js";
import { AppShell } from "./app-shell.js";
import { h } from "./dom.js";
import { listenForKeys, showKeys } from "./keyboard.js";
import { errorMessage, isAllowed, type Page, type PageContext, type PageFactory } from "./page-context.js";
import { PagePoller } from "./page-poller.js";
import { allocatorsPage } from "./pages/allocators.js";
import { brokersPage } from "./pages/brokers.js";
import { configPage } from "./pages/config.js";
import { connectionsPage } from "./pages/connections.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { limitsPage } from "./pages/limits.js";
import { notFoundPage } from "./pages/not-found.js";
import { overviewPage } from "./pages/overview.js";
import { schedulesPage } from "./pages/schedules.js";
import { servicesPage } from "./pages/services.js";
import { workersPage } from "./pages/workers.js";
import { parseRoute, ROOT, type Route } from "./route.js";
import { endSession, hasCode, openSession } from "./session.js";

const PAGES: Readonly<Record<string, PageFactory>> = {
  overview: overviewPage,
  jobs: (route, context) => (route.path.length > 1 ? jobPage : jobsPage)(route, context),
  schedules: schedulesPage,
  workers: workersPage,
  allocators: allocatorsPage,
  services: servicesPage,
  limits: limitsPage,
  brokers: brokersPage,
  config: configPage,
  connections: connectionsPage,
};

const LOGIN_MESSAGES = {
  none: "This is a laboro broker. Log in to see its jobs.",
  "bad link": "This link is no longer valid: it works once, and for five minutes.",
  ended: "The session has ended: it lasts twelve hours.",
} as const;

function showLogin(reason: keyof typeof LOGIN_MESSAGES): void {
  document.title = "Log in · laboro";
  document.body.replaceChildren(loginPage(LOGIN_MESSAGES[reason]));
}

async function start(): Promise<void> {
  // Only the fragment changes if a login link is opened in a tab that shows the dashboard.
  window.addEventListener("hashchange", () => {
    if (hasCode()) location.reload();
  });
  const session = await openSession();
  if (session === "open") await showDashboard();
  else showLogin(session);
}

async function showDashboard(): Promise<void> {
  const permissions = await ask("permissions", {});
  let shell: AppShell | undefined;
  let open: { readonly page: Page; readonly poller: PagePoller } | undefined;
  let ended = false;

  const context: PageContext = {
    permissions,
    navigate: (address, replace = false) => {
      if (replace) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
      show();
    },
    notify: (text, bad = false) => {
      shell?.notify(text, bad);
      open?.poller.pollNow();
    },
    refresh: () => open?.poller.pollNow(),
  };
  const allowed = (needs: string | undefined): boolean => needs === undefined || isAllowed(context, needs);
  shell = new AppShell(context, () => showKeys(allowed));

  function onPolled(cause: unknown): void {
    if (!isRefusedSession(cause)) {
      shell?.showConnection(cause);
      return;
    }
    ended = true;
    open?.poller.stop();
    open?.page.close?.();
    leave();
  }

  function show(): void {
    if (ended) return;
    const route = parseRoute(location);
    const name = route.path[0] ?? "overview";
    shell?.setCurrent(name);
    if (open?.page.onNavigate?.(route) === true) {
      open.poller.pollNow();
      return;
    }
    open?.poller.stop();
    open?.page.close?.();
    const page = pageFor(name, route);
    document.title = `${page.title} · laboro`;
    shell?.main.replaceChildren(page.element);
    window.scrollTo(0, 0);
    // So that a screen reader announces the new page.
    if (open !== undefined) shell?.main.focus({ preventScroll: true });
    open = { page, poller: new PagePoller((signal) => page.refresh(signal), onPolled, page.refreshMs) };
  }

  function pageFor(name: string, route: Route): Page {
    const make = Object.hasOwn(PAGES, name) ? PAGES[name] : undefined;
    return (make ?? notFoundPage)(route, context);
  }

  window.addEventListener("popstate", show);
  document.addEventListener("click", (event) => {
    const to = internalLink(event);
    if (to === undefined) return;
    event.preventDefault();
    context.navigate(to);
  });
  listenForKeys((address) => context.navigate(address), allowed);
  shell.setVersion((await ask("overview", {}, { shared: true })).status.version);
  show();
}

/** The address of a plain click on a link within the dashboard. */
function internalLink(event: MouseEvent): string | undefined {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey)
    return undefined;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  const href = link?.getAttribute("href") ?? "";
  return href.startsWith(`${ROOT}/`) ? href : undefined;
}

const isRefusedSession = (cause: unknown): boolean => cause instanceof ApiError && cause.status === 401;

function leave(): void {
  endSession();
  showLogin("ended");
}

start().catch((cause: unknown) => {
  if (isRefusedSession(cause)) leave();
  else
    document.body.append(
      h("p", { class: "failed-start", role: "alert" }, `This page cannot be shown: ${errorMessage(cause)}`),
    );
});

/** Shown instead of the dashboard to a browser without a session. */
function loginPage(message: string): HTMLElement {
  return h(
    "main",
    { class: "login" },
    h("h1", {}, "Log in"),
    h("p", { role: "alert" }, message),
    h("p", {}, "On the machine of the broker, or wherever its address and token are set, run"),
    h("pre", {}, "laboro open"),
    h(
      "p",
      {},
      "and open the link that it prints: it logs this browser in, once, with the role of the token that was used.",
    ),
  );
}
