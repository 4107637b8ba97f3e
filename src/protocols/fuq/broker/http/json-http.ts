/** HTTP requests and responses with JSON, as fuq's programs write and read them. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** Bytes of a request's body. */
const MAX_REQUEST_BYTES = 1024 * 1024;

const TEXTS = {
  400: "400 bad request",
  403: "403 access forbidden",
  500: "500 internal error",
} as const;

/** Thrown by a request handler; its text is the body of the response. */
export class HttpError extends Error {
  readonly status: number;

  constructor(status: keyof typeof TEXTS);
  constructor(status: number, text: string);
  constructor(status: number, text: string = TEXTS[status as keyof typeof TEXTS]) {
    super(text);
    this.status = status;
  }
}

export const badRequest = (): HttpError => new HttpError(400);

export function sendJson(response: ServerResponse, value: unknown, cookie?: string): void {
  if (cookie !== undefined) response.setHeader("set-cookie", cookie);
  send(response, 200, `${JSON.stringify(value)}\n`);
}

export function sendError(response: ServerResponse, { status, message }: HttpError): void {
  // The rest of the request's body is not read.
  if (!response.req.complete) response.setHeader("connection", "close");
  send(response, status, `${message}\n`);
}

function send(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
    "content-length": Buffer.byteLength(text),
  });
  response.end(text);
}

/** The JSON value in the body, whatever its content type is said to be. */
export async function readJsonBody(request: IncomingMessage): Promise<JsonFields> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > MAX_REQUEST_BYTES) throw badRequest();
      chunks.push(chunk);
    }
    return fieldsOf(JSON.parse(Buffer.concat(chunks).toString()));
  } catch {
    throw badRequest();
  }
}

/** A JSON object. Its names count in any case, as they do for the original; what is missing or null is empty. */
export class JsonFields {
  readonly #values = new Map<string, unknown>();

  constructor(given: object) {
    for (const [name, value] of Object.entries(given)) this.#values.set(name.toLowerCase(), value ?? undefined);
  }

  text(name: string): string {
    const value = this.#values.get(name) ?? "";
    if (typeof value === "string") return value;
    throw badRequest();
  }

  integer(name: string): number {
    const value = this.#values.get(name) ?? 0;
    if (typeof value === "number" && Number.isSafeInteger(value)) return value;
    throw badRequest();
  }

  flag(name: string): boolean {
    const value = this.#values.get(name) ?? false;
    if (typeof value === "boolean") return value;
    throw badRequest();
  }

  list(name: string): readonly unknown[] {
    const value = this.#values.get(name) ?? [];
    if (Array.isArray(value)) return value;
    throw badRequest();
  }

  texts(name: string): readonly string[] {
    return this.list(name).map((value) => {
      if (typeof value === "string") return value;
      throw badRequest();
    });
  }

  /** Undefined where it is missing or null. */
  object(name: string): JsonFields | undefined {
    const value = this.#values.get(name);
    return value === undefined ? undefined : fieldsOf(value);
  }
}

export function fieldsOf(value: unknown): JsonFields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return new JsonFields(value);
  throw badRequest();
}
