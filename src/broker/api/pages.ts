/** Pages for people: the dashboard, a status page without a script, and the login page. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Role, roleAllows } from "../access/roles.js";
import type { Core } from "../core.js";
import { type OperationOutput, perform } from "../operations/index.js";
import type { BrokerInfo } from "../operations/operation.js";
import { serveDashboard, UI_PATH } from "./dashboard.js";
import { html, type Markup, page, STYLE_HASH, table } from "./html.js";

export interface PageRequest {
  readonly core: Core;
  readonly info: BrokerInfo;
  /** Undefined without a valid token. */
  readonly role: Role | undefined;
}

const JOBS = 50;
const HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "cache-control": "no-store",
  "content-security-policy": `default-src 'none'; style-src '${STYLE_HASH}'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'`,
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

export async function servePage(
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
  visit: PageRequest,
): Promise<void> {
  if (request.method !== "GET" && request.method !== "HEAD") {
    sendPage(response, 405, page("Not here", html`<p>This address accepts only GET.</p>`));
  } else if (path !== "/" && path !== "/plain" && !path.startsWith(UI_PATH)) {
    sendPage(response, 404, page("Not found", html`<p>There is nothing at this address.</p>`));
  } else if (wantsDashboard(request, path) && (await serveDashboard(request, response, path))) {
    return;
  } else if (path.startsWith(UI_PATH)) {
    sendPage(response, 404, page("Not found", html`<p>There is nothing at this address.</p>`));
  } else if (visit.role === undefined || !roleAllows(visit.role, "read")) {
    sendPage(response, 401, loginPage());
  } else {
    sendPage(response, 200, await statusPage(visit, visit.role));
  }
}

/** A browser accepts HTML; other programs get the page without a script. The dashboard's files hold no data: everybody gets them. */
const wantsDashboard = ({ headers }: IncomingMessage, path: string): boolean =>
  path.startsWith(UI_PATH) || (path === "/" && headers.accept?.includes("text/html") === true);

function loginPage(): Markup {
  return page(
    "Log in",
    html`<p>This is a laboro broker. This page needs a token; it is the one without a script.</p>
      <p>On the machine of the broker, or wherever its address and token are set, run</p>
      <pre>laboro open</pre>
      <p>
        and open the link that it prints: it logs a browser in to the <a href="/">dashboard</a>, once, with the role of the token that
        was used. Without a script, <code>laboro status</code> shows what this page would.
      </p>
      <p>
        Programs send <code>Authorization: Bearer TOKEN</code>, to this address or to <code>/api/v1/</code>.
      </p>`,
  );
}

async function statusPage({ core, info }: PageRequest, role: Role): Promise<Markup> {
  const context = { role, info, signal: AbortSignal.timeout(10_000) };
  const status = (await perform(core, "status", {}, context)) as OperationOutput<"status">;
  const { jobs } = (await perform(core, "jobs", { limit: JOBS }, context)) as OperationOutput<"jobs">;
  const { workers } = (await perform(core, "workers", {}, context)) as OperationOutput<"workers">;
  return page(
    "laboro",
    html`<p>
        laboro ${status.version}: ${status.tasks.running} tasks run, ${status.tasks.waiting} wait; ${status.workers.connected} workers with
        ${status.slots.free} of ${status.slots.total} slots free; ${status.requests.waiting} requests wait.
      </p>
      ${status.refusing === undefined ? html`` : html`<p><strong>${status.refusing.code}: ${status.refusing.message}</strong></p>`}
      <h2>Jobs</h2>
      ${table(
        ["job", "name", "state", "tasks", "done", "failed", "cancelled", "created", "recipe"],
        jobs.map((job) => [
          job.id,
          job.name,
          job.state,
          job.count,
          job.counters.succeeded,
          job.counters.failed,
          job.counters.cancelled,
          new Date(job.created).toISOString(),
          job.recipe.summary,
        ]),
      )}
      <h2>Workers</h2>
      ${table(
        ["name", "state", "pool", "slots", "free", "tasks", "services", "tags"],
        workers.map((worker) => [
          worker.name,
          worker.connected ? (worker.draining ? "draining" : worker.standing) : "disconnected",
          worker.pool,
          worker.total.slots ?? 0,
          worker.free.slots ?? 0,
          worker.tasks,
          worker.services.join(", "),
          worker.tags.join(", "),
        ]),
      )}`,
  );
}

function sendPage(response: ServerResponse, status: number, content: Markup): void {
  response.writeHead(status, HEADERS);
  response.end(content.text);
}
