import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseListener } from "../../../src/broker/listeners/listener.js";
import { openCliBroker } from "../../cli/support/cli.js";
import { REPOSITORY } from "../../support/launched.js";
import { openAskers } from "./askers.js";
import { ASKERS, type Asker, askers, between, table, type Work, type Worker, whyNot, workers } from "./definition.js";
import { SERVICE_OF, startWorkers } from "./running-workers.js";

const LISTENERS = ["fuq=0", "fuq1=0", "runexp=0", "round-robin=0", "scale0=0,0,0"].flatMap(parseListener);
/** A request reaches the worker that offers its service; a command goes to any that can run it, so this may take a few batches. */
const ROUNDS = 12;

const cellName = (asker: Asker, work: Work, worker: Worker): string => `${asker}: ${work} by ${worker}`;

describe("every asker with every worker, on one broker", () => {
  it("does what the table says, all at the same time", async () => {
    const services = { reverse: "rr.reverse", ours: "ours", theirs: "theirs" };
    const setup = await openCliBroker({ listeners: LISTENERS, listenerSettings: { services } });
    const running = await startWorkers(setup);
    const opened = await openAskers(setup);
    const wanted = new Set(
      askers.flatMap((asker) =>
        workers.flatMap((worker) => between(asker, worker).map((work) => cellName(asker, work, worker))),
      ),
    );
    const seen = new Set<string>();
    try {
      const ask = async (asker: Asker, work: Work): Promise<void> => {
        if (work === "requests") {
          for (const [worker, service] of Object.entries(SERVICE_OF) as [Worker, string][]) {
            await opened.request(asker, service);
            seen.add(cellName(asker, work, worker));
          }
          return;
        }
        for (const name of await opened.work(asker, work)) {
          const kind = running.kindOf.get(name);
          expect(kind, `a worker called ${name}`).toBeDefined();
          if (kind !== undefined) seen.add(cellName(asker, work, kind));
        }
      };
      const missing = (asker: Asker, work: Work): boolean =>
        workers.some((worker) => {
          const cell = cellName(asker, work, worker);
          return wanted.has(cell) && !seen.has(cell);
        });
      for (let round = 0; round < ROUNDS; round++) {
        const left = askers.flatMap((asker) =>
          ASKERS[asker].filter((work) => missing(asker, work)).map((work) => [asker, work] as const),
        );
        if (left.length === 0) break;
        await Promise.all(left.map(([asker, work]) => ask(asker, work)));
      }
    } finally {
      await opened.close();
      await running.stop();
    }
    expect([...wanted].filter((cell) => !seen.has(cell))).toEqual([]);
    // What the table does not promise must not happen either: a worker was given what it cannot do.
    expect([...seen].filter((cell) => !wanted.has(cell))).toEqual([]);
    console.log(
      `${wanted.size} cells, all seen; and ${askers.length * workers.length} pairs, of which these cannot be:`,
    );
    for (const asker of askers)
      for (const worker of workers) if (between(asker, worker).length === 0) console.log(`  ${whyNot(asker, worker)}`);
  }, 180_000);

  it("stands in the README as it is here", () => {
    expect(readFileSync(join(REPOSITORY, "README.md"), "utf8")).toContain(table());
  });
});
