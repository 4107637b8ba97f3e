/** The dashboard: finds out who looks, shows the page of the address, and changes it when the address does. */
import "../style/base.css";
import "../style/parts.css";
import "../style/pages.css";
import { ask, ApiError } from "./api.js";
import { type PageContext, type PageFactory, isAllowed, type Page, errorMessage } from "./page-context.js";
import { h } from "./dom.js";
import { listenForKeys, showKeys } from "./keyboard.js";
import { brokersPage } from "./pages/brokers.js";
import { configPage } from "./pages/config.js";
import { connectionsPage } from "./pages/connections.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { notFoundPage } from "./pages/not-found.js";
import { overviewPage } from "./pages/overview.js";
import { servicesPage } from "./pages/services.js";
import { workersPage } from "./pages/workers.js";
import { type Route, parseRoute, ROOT } from "./route.js";
import { PagePoller } from "./page-poller.js";
import { AppShell } from "./app-shell.js";

const PAGES: Readonly<Record<string, PageFactory>> = {
  overview: overviewPage,
  jobs: (route, context) => (route.path.length > 1 ? jobPage : jobsPage)(route, context),
  workers: workersPage,
  services: servicesPage,
  brokers: brokersPage,
  config: configPage,
  conversations: connectionsPage,
};

async function start(): Promise<void> {
  const access = await ask("access", {});
  let shell: AppShell | undefined;
  let open: { readonly page: Page; readonly pulse: PagePoller } | undefined;

  const context: PageContext = {
    access,
    navigate: (address, replace = false) => {
      if (replace) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
      show();
    },
    notify: (text, bad = false) => {
      shell?.notify(text, bad);
      open?.pulse.pollNow();
    },
    refresh: () => open?.pulse.pollNow(),
  };
  const allowed = (needs: string | undefined): boolean => needs === undefined || isAllowed(context, needs);
  shell = new AppShell(context, () => showKeys(allowed));

  /** A cookie that has run out is told by the page for who has not come in. */
  function onPolled(cause: unknown): void {
    if (cause instanceof ApiError && cause.status === 401) location.assign("/");
    else shell?.showConnection(cause);
  }

  function show(): void {
    const route = parseRoute(location);
    const name = route.path[0] ?? "overview";
    shell?.setCurrent(name);
    if (open?.page.onNavigate?.(route) === true) {
      open.pulse.pollNow();
      return;
    }
    open?.pulse.stop();
    open?.page.close?.();
    const page = pageFor(name, route);
    document.title = `${page.title} · laboro`;
    shell?.main.replaceChildren(page.element);
    window.scrollTo(0, 0);
    // Who does not see the page hears that it is another.
    if (open !== undefined) shell?.main.focus({ preventScroll: true });
    open = { page, pulse: new PagePoller((signal) => page.refresh(signal), onPolled, page.refreshMs) };
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

/** The address that a click leads to, where it is one of ours and nothing else is meant by it. */
function internalLink(event: MouseEvent): string | undefined {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey)
    return undefined;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  const href = link?.getAttribute("href") ?? "";
  return href.startsWith(`${ROOT}/`) ? href : undefined;
}

start().catch((cause: unknown) => {
  if (cause instanceof ApiError && cause.status === 401) location.assign("/");
  else
    document.body.append(
      h("p", { class: "failed-start", role: "alert" }, `This page cannot be shown: ${errorMessage(cause)}`),
    );
});
