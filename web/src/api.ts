/** Calls the broker's operations by name, with their types, with the token of the session. */
import type { OperationInput, OperationOutput } from "../../src/broker/operations/index.js";
import { API_ROUTES, type ApiOperation } from "./api-routes.js";
import { authorization } from "./session.js";

const BASE = "/api/v1";

/** Bytes in JSON. */
export type JsonBytes = string | { readonly base64: string };

/** The type of an answer after JSON. */
type Json<T> = T extends Uint8Array
  ? JsonBytes
  : T extends readonly (infer Item)[]
    ? readonly Json<Item>[]
    : T extends object
      ? { readonly [Name in keyof T]: Json<T[Name]> }
      : T;

export type Answer<Name extends ApiOperation> = Json<OperationOutput<Name>>;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The broker did not answer. */
export class Unreachable extends Error {}

interface AskOptions {
  readonly signal?: AbortSignal;
  /** Accept a cached answer, up to a second old. */
  readonly shared?: boolean;
}

/** The last answers by URL, for `if-none-match`: the broker replies 304 if nothing has changed. */
const cachedAnswers = new Map<string, { readonly tag: string; readonly value: unknown }>();
const MAX_CACHED = 50;

export async function ask<Name extends ApiOperation>(
  name: Name,
  input: OperationInput<Name>,
  { signal, shared = false }: AskOptions = {},
): Promise<Answer<Name>> {
  const { url, request } = requestFor(name, input as Readonly<Record<string, unknown>>);
  const before = shared ? cachedAnswers.get(url) : undefined;
  const response = await send(url, {
    ...request,
    headers: {
      ...request.headers,
      ...(shared ? { "laboro-cache": "shared" } : {}),
      ...(before === undefined ? {} : { "if-none-match": before.tag }),
    },
    ...(signal === undefined ? {} : { signal }),
  });
  if (response.status === 304 && before !== undefined) return before.value as Answer<Name>;
  if (!response.ok) throw await errorFrom(response);
  const value = (await response.json()) as Answer<Name>;
  const tag = response.headers.get("etag");
  if (shared && tag !== null) cacheAnswer(url, { tag, value });
  return value;
}

function cacheAnswer(url: string, answer: { tag: string; value: unknown }): void {
  cachedAnswers.delete(url);
  cachedAnswers.set(url, answer);
  const [oldest] = cachedAnswers.keys();
  if (cachedAnswers.size > MAX_CACHED && oldest !== undefined) cachedAnswers.delete(oldest);
}

async function send(url: string, request: RequestInit): Promise<Response> {
  try {
    const headers = { ...(request.headers as Record<string, string>), ...authorization() };
    return await fetch(url, { ...request, headers, credentials: "omit", cache: "no-store" });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new Unreachable("the broker does not answer", { cause });
  }
}

async function errorFrom(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => ({}))) as { error?: { code?: string; message?: string } };
  const { code = "LABORO_INTERNAL", message = `the broker answered ${response.status}` } = body.error ?? {};
  return new ApiError(response.status, code, message);
}

function requestFor(
  name: ApiOperation,
  input: Readonly<Record<string, unknown>>,
): { url: string; request: RequestInit } {
  const [method, path] = API_ROUTES[name];
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
  const response = await send(url, { headers: { accept: "application/octet-stream" } });
  if (!response.ok) throw await errorFrom(response);
  return response.blob();
}

const decoder = new TextDecoder();

export function decodeText(written: JsonBytes): string {
  if (typeof written === "string") return written;
  return decoder.decode(Uint8Array.from(atob(written.base64), (one) => one.charCodeAt(0)));
}
