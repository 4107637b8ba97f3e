/** HTTP requests and responses with JSON, as fuq's programs write and read them. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** Bytes of a request's body. */
const MAX_REQUEST_BYTES = 1024 * 1024;

const TEXTS: Readonly<Record<number, string>> = {
  400: "400 bad request",
  403: "403 access forbidden",
  500: "500 internal error",
};

/** Thrown by a request handler. Its text is the body of the response. */
export class HttpError extends Error {
  readonly status: number;

  constructor(status: number, text = TEXTS[status] ?? "") {
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

/** The content type is ignored. */
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

/** A JSON object. Names match in any case, as in the original. Missing values and null are empty. */
export class JsonFields {
  readonly #values = new Map<string, unknown>();

  constructor(given: object) {
    for (const [name, value] of Object.entries(given)) this.#values.set(name.toLowerCase(), value ?? undefined);
  }

  text(name: string): string {
    return this.#valueOf(name, "", isText);
  }

  integer(name: string): number {
    return this.#valueOf(name, 0, (value) => Number.isSafeInteger(value));
  }

  flag(name: string): boolean {
    return this.#valueOf(name, false, (value) => typeof value === "boolean");
  }

  list(name: string): readonly unknown[] {
    return this.#valueOf<readonly unknown[]>(name, [], Array.isArray);
  }

  texts(name: string): readonly string[] {
    return this.#valueOf<readonly string[]>(name, [], (value) => Array.isArray(value) && value.every(isText));
  }

  #valueOf<T>(name: string, empty: T, isValid: (value: unknown) => boolean): T {
    const value = this.#values.get(name) ?? empty;
    if (!isValid(value)) throw badRequest();
    return value as T;
  }

  /** Undefined if it is missing or null. */
  object(name: string): JsonFields | undefined {
    const value = this.#values.get(name);
    return value === undefined ? undefined : fieldsOf(value);
  }
}

const isText = (value: unknown): boolean => typeof value === "string";

function fieldsOf(value: unknown): JsonFields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return new JsonFields(value);
  throw badRequest();
}
