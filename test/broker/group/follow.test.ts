/** A job is followed at any broker of a group, and at another one when that is gone. */
import { describe, expect, it } from "vitest";
import { connect } from "../../../src/entries/client.js";
import { CALL_NOTHING, NOTHING } from "../../support/recipes.js";
import { atEnd, joined, openGroup } from "./kit.js";

const inOrder = (indices: readonly number[]): number[] => [...indices].sort((a, b) => a - b);
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

describe("a job that is followed at a broker of a group", () => {
  it("gives what ends at the others, too, each task once", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await Promise.all([joined(a.worker({ services: NOTHING })), joined(b.worker({ services: NOTHING }))]);
    const job = await a.client.submit({ recipe: CALL_NOTHING, count: 3_000 });
    const [here, there] = await Promise.all(
      [job, b.client.job(job.id)].map(async (one) => {
        const indices: number[] = [];
        for await (const { index } of one.results({ follow: true })) indices.push(index);
        return inOrder(indices);
      }),
    );
    expect(here).toEqual(upTo(3_000));
    expect(there).toEqual(upTo(3_000));
  });

  it("goes on at another broker when its own stops: nothing is missing, nothing comes twice", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await joined(
      b.worker({
        services: { slow: () => new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 2)) },
      }),
    );
    const client = await connect({ broker: [a.broker.url, b.broker.url], token: a.broker.token });
    atEnd(async () => client.close());
    const job = await client.submit({ recipe: { kind: "call", service: "slow" }, count: 600 });
    const indices: number[] = [];
    let stopped = false;
    for await (const { index } of job.results({ follow: true })) {
      indices.push(index);
      if (!stopped && indices.length > 20) {
        stopped = true;
        await a.broker.stop();
      }
    }
    expect(stopped).toBe(true);
    expect(inOrder(indices)).toEqual(upTo(600));
  });
});
