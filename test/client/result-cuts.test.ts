import { describe, expect, it } from "vitest";
import { connect, defineTask } from "../../src/entries/client.js";
import { openTestBroker } from "../support/test-broker.js";
import { CuttableBroker } from "./cuttable-broker.js";

const large = defineTask<number, string>("large");

describe("job.result and job.results", () => {
  it("come through, wherever the link is cut", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker().handle(large, (n) => "x".repeat(n));
    // Too large to come with the end of its task: it is read after that.
    const job = await client.add(large, 100_000);
    await job.wait();
    let cuts = 0;
    for (let at = 0; ; at++) {
      const cuttable = new CuttableBroker(broker);
      let left = at;
      let cut = false;
      cuttable.pass = ({ type }) => {
        if (type === "HELLO_ACK" || cut || left-- > 0) return true;
        cut = true;
        cuts++;
        return false;
      };
      const other = await connect({ broker: cuttable });
      const found = other.job(job.id, large);
      expect((await found.result({ timeoutMs: 20_000 })).length).toBe(100_000);
      for await (const { value } of found.results({ timeoutMs: 20_000 })) expect(value?.length).toBe(100_000);
      other.close();
      if (!cut) break;
    }
    expect(cuts).toBeGreaterThan(2);
  });

  it("end where the client is closed", async () => {
    const { broker, client } = await openTestBroker();
    const job = await client.add(large, 1);
    const other = await connect({ broker });
    const result = other.job(job.id, large).result();
    other.close();
    await expect(result).rejects.toMatchObject({ code: "LABORO_BROKER_GONE" });
  });
});
