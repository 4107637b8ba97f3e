import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { testDataError } from "../../../src/protocols/round-robin/stream.js";
import {
  RoundRobinClient,
  RoundRobinWorker,
  type RoundRobinWorkerOptions,
} from "../../../src/protocols/round-robin/worker/worker.js";
import { resultsOf } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";
import {
  atEnd,
  E,
  EXEC,
  FAILURE,
  greeted,
  INCREMENT,
  id8,
  openPlace,
  PING,
  PONG,
  RESPONSE,
  registered,
  STREAM,
  TRACKEXEC,
  V,
} from "./place.js";

async function ourWorker(url: string, options: Partial<RoundRobinWorkerOptions> = {}): Promise<RoundRobinWorker> {
  const worker = await RoundRobinWorker.open({ url, ...options });
  atEnd(() => worker.close());
  await worker.register();
  return worker;
}

async function ourClient(url: string): Promise<RoundRobinClient> {
  const client = await RoundRobinClient.open({ url });
  atEnd(() => client.close());
  return client;
}

describe("round-robin workers and laboro clients", () => {
  it("a job of calls continues after a restart, although no client has used its command since", async () => {
    const before = await openPlace();
    const [first, client] = [await registered(before), await greeted(before.url)];
    await client.send(E, V, TRACKEXEC, id8(1), "shout", E);
    await first.next();
    first.close();
    const recipe = { kind: "call", service: "rr.shout" } as const;
    const { id } = await before.setup.client.submit({ recipe, entries: ["a"], held: true });
    await before.listener.close();
    await before.setup.broker.stop();
    const after = await openPlace({ broker: { dir: join(before.setup.dir, "data") } });
    const worker = await registered(after);
    await (await after.setup.client.job(id)).release();
    const [, , command, callId = "", ...rest] = await worker.next();
    expect([command, ...rest.slice(0, 3)]).toEqual([TRACKEXEC, "shout", "a", E]);
    await worker.send(rest.at(-1) ?? "", E, V, RESPONSE, callId, "A", E);
    await until("it is done", async () => (await after.setup.client.ask("job", { job: id })).state === "succeeded");
  });

  it("a request for rr.ping is a TRACKEXEC PING, answered by a worker of the frame table", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const asked = place.setup.client.request("rr.ping", Buffer.alloc(0));
    const [empty, version, command, id = "", argument, end, back = ""] = await worker.next();
    expect([empty, version, command, argument, end]).toEqual([E, V, TRACKEXEC, PING, E]);
    await worker.send(back, E, V, RESPONSE, id, E);
    expect(Buffer.from(await asked).toString()).toBe("");
  });

  it("no body goes with a PING: an original would close its socket over the answer to one that has an argument", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const asked = place.setup.client.request("rr.ping", Buffer.from("hello"));
    const [, , , id = "", ...rest] = await worker.next();
    expect(rest).toEqual([PING, E, expect.stringMatching(/^laboro:/)]);
    await worker.send(rest.at(-1) ?? "", E, V, RESPONSE, id, E);
    expect(Buffer.from(await asked).toString()).toBe("");
  });

  it("a body is one argument, an answer in several frames comes as lines, a status failure is an error", async () => {
    const place = await openPlace({ settings: { services: { upper: "rr.upper" } } });
    const worker = await registered(place);
    const answerWith = async (...args: string[]): Promise<string[]> => {
      const frames = await worker.next();
      await worker.send(frames.at(-1) ?? "", E, V, RESPONSE, frames[3] ?? "", ...args, E);
      return frames;
    };
    const first = place.setup.client.request("rr.upper", Buffer.from("hello"));
    expect((await answerWith("HELLO")).slice(4, 6)).toEqual(["upper", "hello"]);
    expect(Buffer.from(await first).toString()).toBe("HELLO");
    const second = place.setup.client.request("rr.upper", Buffer.from("a b"));
    await answerWith("A", "B");
    expect(Buffer.from(await second).toString()).toBe("A\nB");
    const third = place.setup.client.request("rr.upper", Buffer.from("x"));
    const refused = expect(third).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED" });
    await answerWith(FAILURE);
    await refused;
  });

  it("a worker that is done and gives no answer has refused", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const asked = place.setup.client.request("rr.stream", Buffer.from("2048"));
    const refused = expect(asked).rejects.toThrow(/gave no answer/);
    expect((await worker.next()).slice(4, 7)).toEqual([STREAM, "laboro", "2048"]);
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
    await refused;
  });

  it("rr.stream gives the whole stream, packet after packet", async () => {
    const place = await openPlace();
    await ourWorker(place.url);
    await ourWorker(place.url, { zlib: true });
    for (let i = 0; i < 4; i++) {
      const data = Buffer.from(await place.setup.client.request("rr.stream", Buffer.from("50000")));
      expect(testDataError(data, 50_000)).toBeUndefined();
    }
    await expect(place.setup.client.request("rr.stream", Buffer.from("lots"))).rejects.toThrow(/aborted/);
  });

  it("are listed with their slots, and a request that is lost says so", async () => {
    const place = await openPlace();
    const worker = await registered(place, "3");
    const { services } = await place.setup.client.ask("services", {});
    expect(services.find(({ name }) => name === "rr.ping")).toMatchObject({
      workers: 1,
      slots: 3,
      free: 3,
      waiting: 0,
    });
    const { workers } = await place.setup.client.ask("workers", {});
    expect(workers[0]).toMatchObject({ name: worker.identity, protocol: "round-robin", address: "127.0.0.1" });
    const lost = expect(place.setup.client.request("rr.ping")).rejects.toMatchObject({ code: "LABORO_WORKER_LOST" });
    await worker.next();
    worker.close();
    await lost;
  });

  it("a batch of calls is durable: its tasks are TRACKEXECs, their output the answers", async () => {
    const place = await openPlace({ settings: { services: { upper: "rr.upper" } } });
    await ourWorker(place.url, {
      slots: 3,
      commands: {
        upper: ([body]) => {
          if (body?.toString() === "bad") throw new Error("I will not");
          return [Buffer.from(body?.toString().toUpperCase() ?? "")];
        },
      },
    });
    const entries = [...Array.from({ length: 40 }, (_, i) => `line ${i}`), "bad"];
    const job = await place.setup.client.submit({ recipe: { kind: "call", service: "rr.upper" }, entries });
    expect(await job.wait()).toBe("failed");
    const results = await resultsOf(job);
    expect(results.filter(({ state }) => state === "succeeded").length).toBe(40);
    expect(await job.text(7)).toBe("LINE 7");
    expect(results.find(({ state }) => state === "failed")?.error).toMatch(/failure/);
  });

  it("a task that is cancelled is over, though its worker goes on", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const job = await place.setup.client.submit({ recipe: { kind: "call", service: "rr.ping" }, count: 2 });
    await worker.next();
    await place.setup.client.ask("cancel", { job: job.id });
    expect(await job.wait()).toBe("cancelled");
    await until("its slot is free", () => place.listener.server.workers()[0]?.freeSlots === 1);
  });

  it("tasks of a worker that dies go to the next one", async () => {
    const place = await openPlace();
    const worker = await registered(place, "5");
    const job = await place.setup.client.submit({ recipe: { kind: "call", service: "rr.ping" }, count: 5 });
    await worker.next();
    worker.close();
    await ourWorker(place.url);
    expect(await job.wait()).toBe("succeeded");
  });
});

describe("laboro workers and round-robin clients", () => {
  it("a command is the service of its name, its arguments the body, the answer one frame", async () => {
    const place = await openPlace({ settings: { services: { resize: "pictures" } } });
    const worker = place.setup.worker();
    worker.handle("rr.ping", () => undefined);
    worker.handle("rr.upper", (body) => Buffer.from(body).toString().toUpperCase());
    worker.handle("pictures", (body) => `resized ${Buffer.from(body).toString()}`);
    worker.handle("rr.broken", () => {
      throw new Error("no");
    });
    const client = await greeted(place.url);
    const ask = async (...args: string[]): Promise<string[]> => {
      await client.send(E, V, TRACKEXEC, id8(1), ...args, E);
      return client.next();
    };
    const [, , , , end, from = ""] = await ask(PING);
    expect([end, from]).toEqual([E, expect.stringMatching(/^laboro:/)]);
    expect((await ask("upper", "hello")).slice(3, 6)).toEqual([id8(1), "HELLO", E]);
    expect((await ask("upper", "two", "lines"))[4]).toBe(`0x${Buffer.from("TWO\nLINES").toString("hex")}`);
    expect((await ask("resize", "cat"))[4]).toBe("resized cat");
    expect((await ask("broken"))[4]).toBe(FAILURE);
    // A heartbeat to whoever answered finds somebody.
    await client.send(from, E, V, PING, id8(9), E);
    expect(await client.next()).toEqual([E, V, PONG, id8(9), E, from]);
    await client.send(from, E, V, TRACKEXEC, id8(10), "ongoing", "x", E);
    expect((await client.next()).slice(3, 5)).toEqual([id8(10), FAILURE]);
  });

  it("an answer to STREAM is a stream of one packet", async () => {
    const place = await openPlace();
    const data = Buffer.alloc(30_000, 5);
    place.setup.worker().handle("rr.stream", () => data);
    expect((await (await ourClient(place.url)).stream(1)).equals(data)).toBe(true);
  });

  it("an EXEC is done and nothing said", async () => {
    const place = await openPlace();
    const done: string[] = [];
    place.setup.worker().handle("rr.note", (body) => void done.push(Buffer.from(body).toString()));
    const client = await greeted(place.url);
    await client.send(E, V, EXEC, id8(1), "note", "this", E);
    await until("it is done", () => done.length === 1);
    await client.greet();
  });

  it("share what comes with round-robin workers, least recently used first", async () => {
    const place = await openPlace();
    let answered = 0;
    place.setup.worker({ slots: 10, services: { "rr.ping": () => void answered++ } });
    const other = await ourWorker(place.url);
    const client = await ourClient(place.url);
    await until("both are there", () => place.setup.broker.core.state.workers.size === 2);
    for (let i = 0; i < 20; i++) await client.pingTracked();
    expect([answered, other.counts.messages]).toEqual([10, 10]);
  });
});
