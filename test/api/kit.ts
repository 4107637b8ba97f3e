/** A broker with its HTTP API, asked over real sockets. */

import { mkdtempSync, rmSync } from "node:fs";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunningBroker, ServerOptions } from "../../src/broker/options.js";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";

export { openTestBroker } from "../support/test-broker.js";

/** A broker without client or worker. */
export async function openListener(
  options: Partial<ServerOptions> = {},
): Promise<{ broker: RunningBroker; dir: string }> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-api-"));
  // Before the start: one that is refused leaves its folder, too.
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const broker = await startBroker({ dir, port: 0, ...options });
  atEnd(() => broker.stop());
  return { broker, dir };
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
  /** The body as JSON, whatever it is. */
  readonly json: unknown;
}

export interface Question {
  readonly method?: string;
  readonly token?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** An object goes as JSON. */
  readonly body?: unknown;
  readonly ca?: string;
  readonly signal?: AbortSignal;
}

export function ask(url: string, question: Question = {}): Promise<Answer> {
  const { method = "GET", token, headers = {}, body, ca, signal } = question;
  const bytes =
    body === undefined
      ? undefined
      : body instanceof Uint8Array
        ? body
        : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
  const sent = {
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(bytes === undefined ? {} : { "content-type": "application/json", "content-length": String(bytes.length) }),
    ...headers,
  };
  const options = { method, headers: sent, agent: false as const, ...(signal === undefined ? {} : { signal }) };
  return new Promise((resolve, reject) => {
    const request = url.startsWith("https:")
      ? httpsRequest(url, { ...options, ...(ca === undefined ? {} : { ca }) })
      : httpRequest(url, options);
    request.on("error", reject);
    request.on("response", (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("error", reject);
      response.on("end", () => {
        const all = Buffer.concat(parts);
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          bytes: all,
          text: all.toString(),
          get json() {
            return JSON.parse(all.toString()) as unknown;
          },
        });
      });
    });
    request.end(bytes);
  });
}

/** The API of this broker, as its admin unless told otherwise. */
export const apiOf =
  (broker: RunningBroker, base = broker.url) =>
  (path: string, question: Question = {}): Promise<Answer> =>
    ask(`${base}/api/v1${path}`, { token: broker.token, ...question });

export const post = (body: unknown = {}): Question => ({ method: "POST", body });

export const codeOf = ({ json }: Answer): string => (json as { error: { code: string } }).error.code;
export const messageOf = ({ json }: Answer): string => (json as { error: { message: string } }).error.message;
