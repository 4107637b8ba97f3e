/** One more piece of work looks at no signature that it does not concern, whichever protocol its worker speaks. */
import { describe, expect, it } from "vitest";
import type { Core } from "../../src/broker/core.js";
import { parseListener } from "../../src/broker/listeners/listener.js";
import { openShop, resultsOf, type Shop } from "../client/shop.js";
import type { Worker } from "../interop/matrix/definition.js";
import { hire, reversed, SERVICE_OF } from "../interop/matrix/staff.js";
import { atEnd } from "../support/at-end.js";

const LISTENERS = ["fuq=0", "fuq1=0", "runexp=0", "round-robin=0", "scale0=0,0,0"].flatMap(parseListener);
const SERVICES = { reverse: "rr.reverse", ours: "ours", theirs: "theirs" };
const SIGNATURES = 300;
const PIECES = 20;

const KINDS: readonly Worker[] = [
  "laboro",
  "fuq v2, WebSocket",
  "fuq v2, raw",
  "fuq, polling",
  "fuq v1",
  "runexp runner",
  "round-robin",
  "Scale0",
];

/** Every walk of dispatch over all signatures from now on, by the function that makes it. */
function walksOf({ state }: Core): string[] {
  const { signatures } = state;
  const walks: string[] = [];
  const { values } = signatures;
  signatures.values = () => {
    const [, , caller = ""] = (new Error().stack ?? "").split("\n");
    if (caller.includes("/dispatch/")) walks.push(caller.trim());
    return values.call(signatures);
  };
  return walks;
}

async function tasks({ client, dir }: Shop, count: number): Promise<number> {
  const recipe = { kind: "command", argv: ["/bin/true", "{#}"], placeholders: true, dir } as const;
  const job = await client.submit({ recipe, count });
  expect(await job.wait()).toBe("succeeded");
  return (await resultsOf(job)).length;
}

async function requests({ client }: Shop, service: string, count: number): Promise<number> {
  for (let i = 0; i < count; i++)
    expect(Buffer.from(await client.request(service, `piece ${i}`)).toString()).toBe(reversed(`piece ${i}`));
  return count;
}

describe("one more piece of work makes no walk over signatures", () => {
  it.each(KINDS)("for a worker of kind %s", async (kind) => {
    const shop = await openShop({ listeners: LISTENERS, listenerSettings: { services: SERVICES } });
    const staff = await hire(shop, [kind]);
    atEnd(() => staff.stop());
    const { client, broker } = shop;
    const held = { recipe: { kind: "command", argv: ["true"] }, held: true } as const;
    await Promise.all(
      Array.from({ length: SIGNATURES }, (_, i) => client.submit({ ...held, timeLimitMs: 60_000 + i })),
    );
    const service = SERVICE_OF[kind];
    const work = (count: number) => (service === undefined ? tasks(shop, count) : requests(shop, service, count));
    // The worker has shown how much it takes at most.
    await work(PIECES);
    const walks = walksOf(broker.core);
    expect(await work(PIECES)).toBe(PIECES);
    expect(broker.core.state.signatures.size).toBeGreaterThan(SIGNATURES);
    expect(walks).toEqual([]);
  });
});
