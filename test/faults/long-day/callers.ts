/** Callers of services by every protocol that has requests. Each question is answered rightly, or refused with a code. */
import { LaboroError } from "../../../src/entries/client.js";
import { RoundRobinClient } from "../../../src/protocols/round-robin/worker/worker.js";
import { Scale0Client } from "../../../src/protocols/scale0/worker/client.js";
import type { GroupSite } from "../../support/group-site.js";
import { sleep } from "../../support/wait.js";
import type { Processes } from "./processes.js";

const TIMEOUT_MS = 5_000;
const BETWEEN_MS = 100;

export interface Calls {
  readonly answered: number;
  readonly refused: number;
}

export interface Callers {
  /** How many each has had so far. */
  readonly calls: () => Readonly<Record<string, Calls>>;
  /** Rejects if one was answered wrongly. */
  readonly stop: () => Promise<void>;
}

export async function openCallers(group: GroupSite, processes: Processes): Promise<Callers> {
  const client = await group.client("c", "b", "a");
  const roundRobin = await RoundRobinClient.open({
    url: `tcp://127.0.0.1:${processes.port("c", "round-robin")}`,
    timeoutMs: TIMEOUT_MS,
    reconnectMs: 100,
  });
  const address = (broker: "a" | "b"): string => `tcp://127.0.0.1:${processes.port(broker, "scale0")}`;
  const scale0 = new Scale0Client({ broker: address("a"), others: [address("b")], retryMs: 100 });
  const rest = async (text: string): Promise<string> => {
    const { url, token } = group.access("b");
    const answer = await fetch(`${url}/api/v1/services/shout`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}` },
      body: text,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const said = await answer.text();
    if (answer.ok) return said;
    throw new LaboroError("LABORO_BROKER_GONE", said);
  };
  const kinds: Readonly<Record<string, (text: string) => Promise<readonly [answer: string, right: string]>>> = {
    laboro: async (text) => [
      Buffer.from(await client.request("echo", text, { timeoutMs: TIMEOUT_MS })).toString(),
      text,
    ],
    REST: async (text) => [await rest(text), text.toUpperCase()],
    "round robin": async (text) => {
      const { args } = await roundRobin.trackexec(Buffer.from("reverse"), Buffer.from(text));
      return [args.map(String).join(), [...text].reverse().join("")];
    },
    Scale0: async (text) => [
      Buffer.concat(await scale0.request("echo", text, { timeoutMs: TIMEOUT_MS })).toString(),
      text,
    ],
  };
  let going = true;
  const counts: Record<string, { answered: number; refused: number }> = {};
  const ask = async (kind: string, one: (text: string) => Promise<readonly [string, string]>): Promise<void> => {
    const count = { answered: 0, refused: 0 };
    counts[kind] = count;
    for (let number = 1; going; number++) {
      try {
        const [answer, right] = await one(`${kind} asks ${number}`);
        if (answer !== right) throw new Error(`${kind} was answered ${answer}, not ${right}`);
        count.answered++;
      } catch (cause) {
        if (!isRefusal(cause)) throw cause;
        count.refused++;
      }
      await sleep(BETWEEN_MS);
    }
  };
  const all = Promise.all(Object.entries(kinds).map(([kind, one]) => ask(kind, one)));
  // Reported by `stop`.
  all.catch(() => {});
  return {
    calls: () => counts,
    stop: async () => {
      going = false;
      try {
        await all;
      } finally {
        await Promise.all([roundRobin.close(), scale0.close()]);
      }
    },
  };
}

/** With a code; or, over HTTP, a connection that was lost or too slow. */
function isRefusal(cause: unknown): boolean {
  if (cause instanceof LaboroError) return true;
  return cause instanceof Error && (cause.message === "fetch failed" || cause.name === "TimeoutError");
}
