/** One more piece of work looks at no signature that it does not concern, whichever protocol its worker speaks. */
import { describe, expect, it } from "vitest";
import type { Core } from "../../src/broker/core.js";
import { parseListener } from "../../src/broker/listeners/listener.js";
import type { Signature } from "../../src/dispatch/state.js";
import type { Worker } from "../interop/matrix/definition.js";
import { reversed, SERVICE_OF, startWorkers } from "../interop/matrix/running-workers.js";
import { atEnd } from "../support/at-end.js";
import { openTestBroker, resultsOf, type TestBroker } from "../support/test-broker.js";

const LISTENERS = ["fuq=0", "fuq1=0", "runexp=0", "round-robin=0", "scale0=0,0,0"].flatMap(parseListener);
const SERVICES = { reverse: "rr.reverse", ours: "ours", theirs: "theirs" };
const SIGNATURES = 100;
const PIECES = 20;
/** For one piece of work: its own signature, each time that the broker looks what comes next. */
const MOST_STEPS = 20;

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

/** The steps of dispatch from now on over sets of signatures: all of them, the active ones, those of each worker. */
function stepsOver({ state }: Core): { count: number } {
  const steps = { count: 0 };
  const counted = function* (items: Iterable<Signature>): IterableIterator<Signature> {
    for (const item of items) {
      steps.count++;
      yield item;
    }
  };
  const { signatures, active, workers } = state;
  const all = signatures.values.bind(signatures);
  signatures.values = () => counted(all()) as ReturnType<typeof all>;
  const isOfSignatures = (field: unknown): field is Set<Signature> =>
    field instanceof Set && [...field].some((item) => signatures.get((item as Signature).key) === item);
  for (const set of [
    active,
    ...[...workers.values()].flatMap((worker) => Object.values(worker)).filter(isOfSignatures),
  ]) {
    const each = set[Symbol.iterator].bind(set);
    set[Symbol.iterator] = () => counted(each()) as ReturnType<typeof each>;
  }
  return steps;
}

async function tasks({ client, dir }: TestBroker, count: number): Promise<number> {
  const recipe = { kind: "command", argv: ["/bin/true", "{#}"], placeholders: true, dir } as const;
  const job = await client.submit({ recipe, count });
  expect(await job.wait()).toBe("succeeded");
  return (await resultsOf(job)).length;
}

async function requests({ client }: TestBroker, service: string, count: number): Promise<number> {
  for (let i = 0; i < count; i++)
    expect(Buffer.from(await client.request(service, `piece ${i}`)).toString()).toBe(reversed(`piece ${i}`));
  return count;
}

describe("one more piece of work makes no walk over signatures without waiting work", () => {
  it.each(KINDS)("for a worker of kind %s", async (kind) => {
    const setup = await openTestBroker({ listeners: LISTENERS, listenerSettings: { services: SERVICES } });
    const running = await startWorkers(setup, [kind]);
    atEnd(() => running.stop());
    const { client, broker } = setup;
    const held = {
      recipe: { kind: "command", argv: ["/bin/true", "{#}"], placeholders: true, dir: setup.dir },
      held: true,
    } as const;
    await Promise.all(
      Array.from({ length: SIGNATURES }, (_, i) => client.submit({ ...held, timeLimitMs: 60_000 + i })),
    );
    const service = SERVICE_OF[kind];
    const work = (count: number) => (service === undefined ? tasks(setup, count) : requests(setup, service, count));
    // The worker has shown how much it takes at most.
    await work(PIECES);
    const steps = stepsOver(broker.core);
    expect(await work(PIECES)).toBe(PIECES);
    expect(broker.core.state.signatures.size).toBeGreaterThan(SIGNATURES);
    expect(steps.count / PIECES).toBeLessThan(MOST_STEPS);
  });
});
