/** Requests for services that only workers of another broker offer. */
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { joined, type Member, openGroup, PATIENCE_MS } from "./kit.js";

async function two(): Promise<readonly [Member, Member]> {
  const { members } = await openGroup(2);
  return members as unknown as [Member, Member];
}

const upper = async (body: Uint8Array): Promise<Uint8Array> => Buffer.from(Buffer.from(body).toString().toUpperCase());

describe("a request", () => {
  it("is answered by a worker that only another broker has, and not sent on from there", async () => {
    const [a, b] = await two();
    await joined(b.worker({ services: { upper } }));
    await until("a knows of it", () => a.broker.core.peers?.all[0]?.services.length === 1, PATIENCE_MS);
    expect(Buffer.from(await a.client.request("upper", "hello")).toString()).toBe("HELLO");
    const { services } = await a.client.ask("services", {});
    expect(services).toMatchObject([{ name: "upper", workers: 1, slots: 2 }]);
    expect(b.broker.core.state.requests.size).toBe(0);
  });

  it("fails with what a handler at another broker threw", async () => {
    const [a, b] = await two();
    const fails = (): never => {
      throw Object.assign(new RangeError("too far", { cause: new Error("no map") }), { code: "EFAR" });
    };
    await joined(b.worker({ services: { fails } }));
    await until("a knows of it", () => a.broker.core.peers?.all[0]?.services.length === 1, PATIENCE_MS);
    await expect(a.client.request("fails")).rejects.toMatchObject({
      ...{ code: "LABORO_SERVICE_FAILED", message: "too far" },
      cause: { name: "RangeError", code: "EFAR", cause: { message: "no map" } },
    });
  });

  it("that waits where nobody is finds a worker that comes to another broker", async () => {
    const [a, b] = await two();
    const asked = a.client.request("upper", "late", { timeoutMs: PATIENCE_MS });
    b.worker({ services: { upper } });
    expect(Buffer.from(await asked).toString()).toBe("LATE");
  });

  it("keeps its deadline, and its refusal says why", async () => {
    const [a, b] = await two();
    const never = (): Promise<Uint8Array> => new Promise(() => {});
    await joined(b.worker({ services: { never } }));
    await until("a knows of it", () => a.broker.core.peers?.all[0]?.services.length === 1, PATIENCE_MS);
    await expect(a.client.request("never", "", { timeoutMs: 300 })).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    await expect(a.client.request("nothing", "", { timeoutMs: 50 })).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
  });

  it("whose asker goes is taken back from the other broker", async () => {
    const [a, b] = await two();
    let aborted = false;
    const slow = (_body: Uint8Array, { signal }: { signal: AbortSignal }): Promise<Uint8Array> =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          aborted = true;
          resolve(new Uint8Array());
        });
      });
    await joined(b.worker({ services: { slow } }));
    await until("a knows of it", () => a.broker.core.peers?.all[0]?.services.length === 1, PATIENCE_MS);
    const gone = new AbortController();
    const asked = a.client.request("slow", "", { signal: gone.signal });
    await until("b has it", () => b.broker.core.state.requests.size === 1, PATIENCE_MS);
    gone.abort();
    await expect(asked).rejects.toMatchObject({ name: "AbortError" });
    await until("the worker is told", () => aborted, PATIENCE_MS);
  });

  it("is refused when the broker that has the worker is lost under it", async () => {
    const [a, b] = await two();
    await joined(b.worker({ services: { hang: () => new Promise(() => {}) } }));
    await until("a knows of it", () => a.broker.core.peers?.all[0]?.services.length === 1, PATIENCE_MS);
    const asked = a.client.request("hang");
    asked.catch(() => {});
    await until("b has it", () => b.broker.core.state.requests.size === 1, PATIENCE_MS);
    await b.broker.stop();
    await expect(asked).rejects.toMatchObject({ code: expect.stringMatching(/LABORO_(WORKER_LOST|BROKER_STOPPING)/) });
  });
});
