/** Pages for people: the dashboard, a status page without a script, and the login page. */
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { packageRoot } from "../../base/package.js";
import { type Role, roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import { type OperationOutput, perform } from "../operations/index.js";
import type { BrokerInfo } from "../operations/operation.js";

interface PageRequest {
  readonly core: Core;
  readonly info: BrokerInfo;
  /** Undefined without a valid token. */
  readonly role: Role | undefined;
}

/** HTML templates that escape every value except markup made here. */
class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Content = string | number | Markup | readonly Markup[];

function html(parts: TemplateStringsArray, ...values: readonly Content[]): Markup {
  return new Markup(parts.reduce((text, part, i) => text + render(values[i - 1] ?? "") + part));
}

function render(value: Content): string {
  if (value instanceof Markup) return value.text;
  return typeof value === "object" ? value.map(({ text }) => text).join("") : escaped(String(value));
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => ENTITIES[one] ?? one);

const STYLE = new Markup(
  ":root{color-scheme:light dark}body{font:15px/1.6 system-ui,sans-serif;margin:3rem auto;max-width:72rem;padding:0 1.25rem}" +
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}" +
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8885}th{font-weight:600}" +
    "pre{border:1px solid #8885;border-radius:6px;padding:.7rem 1rem;font-size:1.05rem}",
);

/** The hash of the style sheet for the content security policy: no other style is applied. */
const STYLE_HASH = `sha256-${createHash("sha256").update(STYLE.text).digest("base64")}`;

function page(title: string, content: Markup): Markup {
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${title}</title>
<style>${STYLE}</style></head><body><h1>${title}</h1>
${content}
</body></html>
`;
}

function table(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): Markup {
  if (rows.length === 0) return html`<p>None.</p>`;
  return html`<table><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr>
${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>\n`)}</table>`;
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

/** A browser accepts HTML. Other programs get the page without a script. */
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

/**
 * The dashboard's files, from dist/web. They hold no data, so they need no token. They are read once. Every path below
 * /ui/ that is not a file is a page of the dashboard: one HTML document, whose script reads the address.
 */
const UI_PATH = "/ui/";
const ASSETS = `${UI_PATH}assets/`;

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".json": "application/json",
};

/** No other origin, nothing inline, no frames. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const DASHBOARD_HEADERS = {
  "content-security-policy": POLICY,
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

interface DashboardFile {
  readonly bytes: Uint8Array;
  readonly type: string;
}

type Files = ReadonlyMap<string, DashboardFile>;

let cachedFiles: Promise<Files> | undefined;

/** By path; empty if the dashboard was not built. */
function files(): Promise<Files> {
  cachedFiles ??= readFiles().catch((cause: unknown) => {
    cachedFiles = undefined;
    throw cause;
  });
  return cachedFiles;
}

async function readFiles(): Promise<Files> {
  const folder = new URL("dist/web/", packageRoot());
  const found = new Map<string, DashboardFile>();
  for (const path of await listed(folder)) {
    const type = TYPES[extname(path)];
    if (type !== undefined) found.set(path, { bytes: await fs.readFile(new URL(path, folder)), type });
  }
  return found;
}

async function listed(folder: URL): Promise<string[]> {
  try {
    return await fs.readdir(folder, { recursive: true });
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return [];
    throw new LaboroError("LABORO_INTERNAL", `the dashboard cannot be read: ${String(cause)}`, { cause });
  }
}

/** Returns false if the path is not part of the dashboard, or the dashboard was not built. */
async function serveDashboard(request: IncomingMessage, response: ServerResponse, path: string): Promise<boolean> {
  if (path !== "/" && !path.startsWith(UI_PATH)) return false;
  const all = await files();
  const asset = all.get(path.slice(UI_PATH.length));
  const page = path.startsWith(ASSETS) || extname(path) !== "" ? undefined : all.get("index.html");
  const file = path.startsWith(UI_PATH) && asset !== undefined && asset.type !== TYPES[".html"] ? asset : page;
  if (file === undefined) return false;
  response.writeHead(200, {
    ...DASHBOARD_HEADERS,
    "content-type": file.type,
    "content-length": file.bytes.length,
    // The names of assets change with their content.
    "cache-control": path.startsWith(ASSETS) ? "private, max-age=31536000, immutable" : "no-store",
  });
  response.end(request.method === "HEAD" ? undefined : file.bytes);
  return true;
}
