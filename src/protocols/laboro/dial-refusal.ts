/** A broker's refusal of a link, as an error with a code. */
import type { IncomingMessage } from "node:http";
import { type ErrorCode, LaboroError } from "../../base/errors.js";

const TEXT_LIMIT = 2048;

const CODES: Readonly<Record<number, ErrorCode>> = {
  401: "LABORO_BAD_TOKEN",
  403: "LABORO_FORBIDDEN",
  426: "LABORO_VERSION",
};

/** A broker that closes a link with one of these will do so again. */
export const isRefusal = (error: LaboroError): boolean => Object.values(CODES).includes(error.code);

/** Any other status is one of a broker that may yet come: LABORO_BROKER_UNREACHABLE. */
export async function refusalOf(response: IncomingMessage, broker: string): Promise<LaboroError> {
  const status = response.statusCode ?? 0;
  const body = await textOf(response);
  const text = `${broker} answered ${status}${body === "" ? "" : `: ${body}`}`;
  return new LaboroError(CODES[status] ?? "LABORO_BROKER_UNREACHABLE", text);
}

/** The first line of the body, or what came of it before the connection ended. */
function textOf(response: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const done = (): void => resolve(text.split("\n", 1)[0]?.trim() ?? "");
    response.setEncoding("utf8");
    response.on("data", (part: string) => {
      text += part;
      if (text.length > TEXT_LIMIT) done();
    });
    response.on("end", done);
    response.on("close", done);
    response.on("error", done);
  });
}
