/**
 * The dashboard's files, from dist/web, for everybody: they hold no data. They are read once. Every path below /ui/ that is not a file is a page of the dashboard, which is
 * one HTML document; its script reads the address.
 */
import * as fs from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { packageRoot } from "../../base/package.js";

export const UI_PATH = "/ui/";
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

const HEADERS = {
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

/** By their path; none if the dashboard was not built. */
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

/** Returns false if the path is not of the dashboard, or the dashboard was not built. */
export async function serveDashboard(
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
): Promise<boolean> {
  if (path !== "/" && !path.startsWith(UI_PATH)) return false;
  const all = await files();
  const asset = all.get(path.slice(UI_PATH.length));
  const page = path.startsWith(ASSETS) || extname(path) !== "" ? undefined : all.get("index.html");
  const file = path.startsWith(UI_PATH) && asset !== undefined && asset.type !== TYPES[".html"] ? asset : page;
  if (file === undefined) return false;
  response.writeHead(200, {
    ...HEADERS,
    "content-type": file.type,
    "content-length": file.bytes.length,
    // The names of assets change with their content.
    "cache-control": path.startsWith(ASSETS) ? "private, max-age=31536000, immutable" : "no-store",
  });
  response.end(request.method === "HEAD" ? undefined : file.bytes);
  return true;
}
