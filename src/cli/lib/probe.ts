/** Whether anything listens where a broker should be: a link tries for seconds, a closed port is known at once. */
import { connect } from "node:net";
import { errnoOf, LaboroError } from "../../base/errors.js";

const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "this host name is not known",
  EAI_AGAIN: "this host name cannot be looked up now",
  EHOSTUNREACH: "there is no way to this host",
  ENETUNREACH: "there is no way to its network",
  ETIMEDOUT: "no answer came",
};

/** Resolves when one of the addresses takes a connection; rejects when none does. */
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
      const why = WORDS[errnoOf(cause) ?? ""] ?? (cause instanceof Error ? cause.message : String(cause));
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
