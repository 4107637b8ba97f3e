/** What a program submits in one turn of its event loop travels together. */
import { expect, it, vi } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import { ClientSession } from "../../src/protocols/laboro/broker/client-session.js";
import { atEnd } from "../support/at-end.js";
import { openTestBroker } from "../support/test-broker.js";

const work = defineTask<number, number>("work");
const COUNT = 200;

it("200 jobs added in one turn are one frame and one commit, each with an answer of its own", async () => {
  const { broker, client } = await openTestBroker();
  const frames = vi.spyOn(ClientSession.prototype, "onMessages");
  atEnd(() => frames.mockRestore());
  const commits = vi.spyOn(broker.core.store, "commit");
  const adding = Array.from({ length: COUNT }, (_, i) =>
    client.add(work, i, i === 7 ? { name: "" } : i % 2 === 0 ? { key: `job-${i}` } : {}),
  );
  const added = await Promise.allSettled(adding);
  expect(frames.mock.calls.filter(([batch]) => batch.some(({ type }) => type === "OPERATION"))).toHaveLength(1);
  const submits = commits.mock.calls.map(([writes]) => writes.filter(({ op }) => op === "submit").length);
  expect(submits.filter((count) => count > 0)).toEqual([COUNT - 1]);
  expect(added[7]).toMatchObject({ status: "rejected", reason: { code: "LABORO_BAD_INPUT" } });
  const ids = added.flatMap((one) => (one.status === "fulfilled" ? [one.value.id] : []));
  expect(new Set(ids).size).toBe(COUNT - 1);
});
