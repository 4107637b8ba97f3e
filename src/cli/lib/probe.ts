/** Checks that something listens at a broker's address. The link retries for seconds; a closed port is detected at once. */
import { connect } from "node:net";
import { errnoOf, LaboroError } from "../../base/errors.js";

const CAUSES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "this host name is not known",
  EAI_AGAIN: "this host name cannot be looked up now",
  EHOSTUNREACH: "there is no route to this host",
  ENETUNREACH: "there is no route to its network",
  ETIMEDOUT: "no answer came",
};

/** Resolves when one of the addresses accepts a connection; rejects when none does. */
export async function probeBroker(urls: readonly string[], timeoutMs: number): Promise<void> {
  try {
    await Promise.any(urls.map((url) => probeUrl(url, timeoutMs)));
  } catch (cause) {
    const [first] = cause instanceof AggregateError ? (cause.errors as unknown[]) : [];
    throw first ?? cause;
  }
}

function probeUrl(url: string, timeoutMs: number): Promise<void> {
  const { hostname, port, protocol, origin } = new URL(url);
  // An address of version 6 stands in brackets in a URL, and nowhere else.
  const host = hostname.replace(/^\[|\]$/g, "");
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(port) || (protocol === "https:" ? 443 : 80), timeout: timeoutMs });
    const fail = (cause: unknown): void => {
      socket.destroy();
      const why = CAUSES[errnoOf(cause) ?? ""] ?? (cause instanceof Error ? cause.message : String(cause));
      reject(new LaboroError("LABORO_BROKER_UNREACHABLE", `no broker answers at ${origin}: ${why}`, { cause }));
    };
    socket.on("connect", () => {
      socket.destroy();
      resolve();
    });
    socket.on("timeout", () => fail(`no answer within ${timeoutMs} ms`));
    socket.on("error", fail);
  });
}
