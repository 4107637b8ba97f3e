import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

const PLAIN = { slots: 3, resumable: false };

describe("a worker that comes back with a task that went back to the line", () => {
  it("keeps it where nobody else has taken it, and its result counts once", () => {
    const broker = new Workbench();
    broker.join("a", PLAIN);
    const job = broker.submit({ count: 3 });
    expect(broker.at("a")).toHaveLength(3);
    broker.hold(job);
    broker.away("a");
    broker.held.delete("a");
    broker.join("a", PLAIN);
    expect(broker.reclaim("a", `${job}.1`)).toBe(2);
    expect(broker.reclaim("a", `${job}.1`)).toBe(2);
    broker.finish("a", [`${job}.1`]);
    expect(broker.job(job).counters.succeeded).toBe(1);
    broker.hold(job, false);
    expect(broker.at("a").sort()).toEqual([`${job}.0`, `${job}.2`]);
    broker.finish("a");
    expect(broker.job(job).ended?.state).toBe("succeeded");
  });

  it("does not get what another has, what is over, or what nobody ever had", () => {
    const broker = new Workbench();
    broker.join("a", PLAIN);
    const job = broker.submit({ count: 5 });
    broker.finish("a", [`${job}.0`]);
    broker.away("a");
    broker.held.delete("a");
    broker.join("b", { slots: 1 });
    broker.join("a", { slots: 1, resumable: false });
    const [atB = ""] = broker.at("b");
    expect(broker.reclaim("a", atB)).toBeUndefined();
    expect(broker.reclaim("a", `${job}.0`)).toBeUndefined();
    expect(broker.reclaim("a", `${job}.4`)).toBeUndefined();
    expect(broker.reclaim("a", "77.0")).toBeUndefined();
    const waits = [1, 2, 3].map((index) => `${job}.${index}`).find((task) => ![atB, ...broker.at("a")].includes(task));
    broker.cancel(job);
    expect(broker.reclaim("a", waits ?? "none")).toBeUndefined();
  });

  it("does not get it beyond the job's maxRunning", () => {
    const broker = new Workbench();
    broker.join("a", PLAIN);
    const job = broker.submit({ count: 2, maxRunning: 2 });
    broker.hold(job);
    broker.away("a");
    broker.held.delete("a");
    broker.edit(job, { maxRunning: 1 });
    broker.join("a", PLAIN);
    expect(broker.reclaim("a", `${job}.0`)).toBe(2);
    expect(broker.reclaim("a", `${job}.1`)).toBeUndefined();
  });

  it("was not lost, so nothing counts as a crash", () => {
    const broker = new Workbench();
    broker.join("a", PLAIN);
    const job = broker.submit({ crashLimit: 2 });
    for (let cut = 0; cut < 3; cut++) {
      broker.start("a", `${job}.0`);
      broker.hold(job);
      broker.away("a");
      broker.join("a", PLAIN);
      expect(broker.reclaim("a", `${job}.0`)).toBe(cut + 2);
    }
    broker.finish("a");
    expect(broker.job(job).ended?.state).toBe("succeeded");
  });
});
