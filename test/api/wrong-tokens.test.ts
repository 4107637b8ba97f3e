import { describe, expect, it } from "vitest";
import { TokenThrottle } from "../../src/broker/access/auth.js";
import { Tokens } from "../../src/broker/access/tokens.js";
import { apiOf, ask, openTestBroker } from "./kit.js";

describe("wrong tokens", () => {
  it("are answered ever more slowly, by address, and forgotten after a while", () => {
    let now = 0;
    const slow = new TokenThrottle(() => now);
    const delay = (address = "10.0.0.1"): number | undefined => {
      const ms = slow.delayAfterFailure(address);
      slow.refusalSent(address);
      return ms;
    };
    expect([delay(), delay(), delay(), delay()]).toEqual([100, 200, 400, 800]);
    expect(delay("10.0.0.2")).toBe(100);
    for (let i = 0; i < 50; i++) delay();
    expect(delay()).toBe(3_200);
    now = 61_000;
    expect(delay()).toBe(100);
  });

  it("are refused at once when many wait already, and cost bounded memory", () => {
    const slow = new TokenThrottle(() => 0);
    for (let i = 0; i < 16; i++) expect(slow.delayAfterFailure("a")).toBeGreaterThan(0);
    expect(slow.delayAfterFailure("a")).toBeUndefined();
    slow.refusalSent("a");
    expect(slow.delayAfterFailure("a")).toBeGreaterThan(0);
    for (let i = 0; i < 5_000; i++) slow.delayAfterFailure(`10.1.${i >> 8}.${i & 255}`);
    expect(slow.size).toBe(1_000);
  });

  it("of one IPv6 network count together", () => {
    const slow = new TokenThrottle(() => 0);
    slow.delayAfterFailure("2001:db8:1:2::1");
    expect(slow.delayAfterFailure("2001:db8:1:2:ffff::9")).toBe(200);
    expect(slow.delayAfterFailure("2001:db8:1:3::1")).toBe(100);
    // Zeros in the network's part are left out as well.
    slow.delayAfterFailure("2001:db8::1");
    expect(slow.delayAfterFailure("2001:db8::a:b:c:9")).toBe(200);
    expect(slow.delayAfterFailure("2001:db8:0:1::1")).toBe(100);
    slow.delayAfterFailure("2001:db8:0:1:a:b:c:d");
    expect(slow.delayAfterFailure("::1")).toBe(100);
  });

  it("delay nobody who has a right one", async () => {
    const { broker } = await openTestBroker();
    const begun = performance.now();
    const wrong = Array.from({ length: 6 }, () => ask(`${broker.url}/api/v1/status`, { token: "guess" }));
    expect((await apiOf(broker)("/status")).status).toBe(200);
    const rightAfter = performance.now() - begun;
    expect((await Promise.all(wrong)).map(({ status }) => status)).toEqual([401, 401, 401, 401, 401, 401]);
    expect(performance.now() - begun).toBeGreaterThan(3_000);
    expect(rightAfter).toBeLessThan(2_000);
  });

  it("never match, whatever their length", () => {
    const tokens = new Tokens([{ role: "admin", token: "correct horse battery" }]);
    for (const wrong of ["", "c", "correct horse batter", "correct horse battery ", "x".repeat(1e6)]) {
      expect(tokens.roleOf(wrong)).toBeUndefined();
    }
    expect(tokens.roleOf("correct horse battery")).toBe("admin");
  });
});
