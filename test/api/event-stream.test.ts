import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { EVENTS_KEPT } from "../../src/broker/events.js";
import type { RunningBroker } from "../../src/broker/options.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openTestBroker } from "./kit.js";

interface Message {
  readonly id?: number;
  readonly event?: string;
  readonly data: unknown;
}

const open: ClientRequest[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.destroy();
});

/** Follows the events and gathers what comes. */
async function follow(broker: RunningBroker, headers: Readonly<Record<string, string>> = {}, query = "") {
  const asked = request(`${broker.url}/api/v1/events${query}`, {
    headers: { accept: "text/event-stream", authorization: `Bearer ${broker.token}`, ...headers },
    agent: false,
  });
  open.push(asked);
  asked.on("error", () => {});
  asked.end();
  const response = await new Promise<IncomingMessage>((resolve) => asked.once("response", resolve));
  let text = "";
  response.setEncoding("utf8").on("data", (part: string) => (text += part));
  response.on("error", () => {});
  const messages = (): Message[] =>
    text
      .split("\n\n")
      .slice(0, -1)
      .filter((block) => !block.startsWith(":"))
      .map((block) => {
        const fields = Object.fromEntries(
          block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
        );
        return {
          ...(fields.id === undefined ? {} : { id: Number(fields.id) }),
          ...(fields.event === undefined ? {} : { event: fields.event }),
          data: JSON.parse(fields.data ?? "null") as unknown,
        };
      });
  return { response, messages, text: () => text, stop: () => asked.destroy() };
}

describe("a stream of events", () => {
  it("sends what happens, and goes on after the last event that was seen", async () => {
    const { broker, client } = await openTestBroker();
    const first = await follow(broker);
    expect(first.response.headers["content-type"]).toBe("text/event-stream");
    const job = await client.submit({ recipe: TRUE, held: true });
    await until("the submission was told", () => first.messages().length === 1);
    expect(first.messages()[0]?.data).toMatchObject({ kind: "job-added", job: job.id });
    first.stop();
    await job.release();
    await job.hold();
    const again = await follow(broker, { "last-event-id": String(first.messages()[0]?.id) });
    await until("what came meanwhile was told", () => again.messages().length === 2);
    expect(again.messages().map(({ data }) => (data as { kind: string }).kind)).toEqual(["job-released", "job-held"]);
  });

  it("says missed where the ring no longer has what came after", async () => {
    const { broker, client } = await openTestBroker();
    await client.submit({ recipe: TRUE });
    const { messages } = await follow(broker, { "last-event-id": "17" });
    await until("missed was told, and what there is", () => messages().length === 2);
    expect(messages()[0]).toMatchObject({ event: "missed", data: { after: 17 } });
    expect(messages()[1]?.data).toMatchObject({ kind: "job-added" });
  });

  it("loses nothing but what missed names, wherever the connection ends", async () => {
    const { broker } = await openTestBroker();
    const { events } = broker.core;
    const start = events.last;
    for (let i = 0; i < EVENTS_KEPT + 300; i++) events.add({ kind: "broker-resumed" });
    const first = await follow(broker, { "last-event-id": String(start) });
    await until("missed was sent", () => first.messages().length > 0);
    const [missed] = first.messages();
    expect(missed).toMatchObject({ event: "missed", id: start + 300, data: { after: start, until: start + 300 } });
    first.stop();
    // The connection ended behind `missed`.
    const again = await follow(broker, { "last-event-id": String(missed?.id) });
    await until("all came", () => again.text().includes(`id: ${events.last}\n`));
    expect(again.messages().map(({ id }) => id)).toEqual(
      Array.from({ length: EVENTS_KEPT }, (_, i) => start + 301 + i),
    );
  });

  it("can be of one job", async () => {
    const { broker, client } = await openTestBroker();
    const job = await client.submit({ recipe: TRUE, held: true });
    const { messages } = await follow(broker, {}, `?job=${job.id}`);
    await client.submit({ recipe: TRUE });
    await job.cancel();
    await until("its end was told", () =>
      messages().some(({ data }) => (data as { kind: string }).kind === "job-ended"),
    );
    expect(messages().every(({ data }) => (data as { job: number }).job === job.id)).toBe(true);
  });

  it("keeps little for a follower that does not read, who then goes on from the ring", async () => {
    const { broker } = await openTestBroker();
    const slow = await follow(broker);
    slow.response.pause();
    const before = process.memoryUsage().rss;
    const message = "x".repeat(4_000);
    for (let i = 0; i < 20_000; i++)
      broker.core.events.add({ kind: "broker-halted", code: "LABORO_DISK_FULL", message });
    expect(process.memoryUsage().rss - before).toBeLessThan(400 * 1024 * 1024);
    slow.response.resume();
    await until("it has caught up", () => slow.text().includes(`id: ${broker.core.events.last}\n`));
    expect(slow.messages().some(({ event }) => event === "missed")).toBe(true);
  });

  it("is refused for a bad place to go on from", async () => {
    const { broker } = await openTestBroker();
    const { response } = await follow(broker, { "last-event-id": "1\u0020OR 1" });
    expect(response.statusCode).toBe(400);
  });
});
