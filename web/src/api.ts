/** Asking the broker: every operation by its name, with its types. The browser sends the cookie along. */
import type { OperationInput, OperationOutput } from "../../src/broker/operations/index.js";
import { type Asked, ROUTES } from "./routes.js";

const BASE = "/api/v1";

/** Bytes as JSON has them. */
export type Written = string | { readonly base64: string };

/** What an answer is once it has been JSON. */
export type Json<T> = T extends Uint8Array
  ? Written
  : T extends readonly (infer Item)[]
    ? readonly Json<Item>[]
    : T extends object
      ? { readonly [Name in keyof T]: Json<T[Name]> }
      : T;

export type Answer<Name extends Asked> = Json<OperationOutput<Name>>;

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The broker did not answer at all. */
export class Unreachable extends Error {}

export interface Asking {
  readonly signal?: AbortSignal;
  /** The same answer that others get, up to a second old. */
  readonly shared?: boolean;
}

/** Texts that came last, by address: the broker says so where nothing has changed. */
const known = new Map<string, { readonly tag: string; readonly value: unknown }>();
const KNOWN = 50;

export async function ask<Name extends Asked>(
  name: Name,
  input: OperationInput<Name>,
  { signal, shared = false }: Asking = {},
): Promise<Answer<Name>> {
  const { url, request } = requestFor(name, input as Readonly<Record<string, unknown>>);
  const before = shared ? known.get(url) : undefined;
  const response = await reach(url, {
    ...request,
    headers: {
      ...request.headers,
      ...(shared ? { "laboro-look": "shared" } : {}),
      ...(before === undefined ? {} : { "if-none-match": before.tag }),
    },
    ...(signal === undefined ? {} : { signal }),
  });
  if (response.status === 304 && before !== undefined) return before.value as Answer<Name>;
  if (!response.ok) throw await refusal(response);
  const value = (await response.json()) as Answer<Name>;
  const tag = response.headers.get("etag");
  if (shared && tag !== null) remember(url, { tag, value });
  return value;
}

function remember(url: string, look: { tag: string; value: unknown }): void {
  known.delete(url);
  known.set(url, look);
  const [oldest] = known.keys();
  if (known.size > KNOWN && oldest !== undefined) known.delete(oldest);
}

async function reach(url: string, request: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...request, credentials: "same-origin", cache: "no-store" });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new Unreachable("the broker does not answer", { cause });
  }
}

async function refusal(response: Response): Promise<Refused> {
  const said = (await response.json().catch(() => ({}))) as { error?: { code?: string; message?: string } };
  const { code = "LABORO_INTERNAL", message = `the broker answered ${response.status}` } = said.error ?? {};
  return new Refused(response.status, code, message);
}

function requestFor(name: Asked, input: Readonly<Record<string, unknown>>): { url: string; request: RequestInit } {
  const [method, path] = ROUTES[name];
  const rest = new Map(Object.entries(input).filter(([, value]) => value !== undefined));
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, member: string) => {
    const value = rest.get(member);
    rest.delete(member);
    return encodeURIComponent(String(value));
  });
  if (method === "POST") {
    const body = JSON.stringify(Object.fromEntries(rest));
    return { url: BASE + filled, request: { method, body, headers: { "content-type": "application/json" } } };
  }
  const query = new URLSearchParams([...rest].map(([member, value]) => [member, String(value)])).toString();
  return { url: BASE + filled + (query === "" ? "" : `?${query}`), request: { method, headers: {} } };
}

/** A task's output as it was written, for a file. */
export async function rawOutput(job: number, index: number): Promise<Blob> {
  const url = `${BASE}/jobs/${job}/tasks/${index}/output`;
  const response = await reach(url, { headers: { accept: "application/octet-stream" } });
  if (!response.ok) throw await refusal(response);
  return response.blob();
}

const decoder = new TextDecoder();

export function textOf(written: Written): string {
  if (typeof written === "string") return written;
  return decoder.decode(Uint8Array.from(atob(written.base64), (one) => one.charCodeAt(0)));
}
