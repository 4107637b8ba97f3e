import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, ask, codeOf, openTestBroker, post } from "./kit.js";

describe("a body", () => {
  it("that is too large is refused with its code", async () => {
    const { broker } = await openTestBroker();
    const api = apiOf(broker);
    const two = `{"reason":"${"x".repeat(2 * 1024 * 1024)}"}`;
    const small = await api("/jobs/1/cancel", post(two));
    expect([small.status, codeOf(small)]).toEqual([413, "LABORO_BODY_TOO_LARGE"]);
    expect(small.text).toContain("the body is larger than 1048576 bytes");
    const declared = await api("/jobs", {
      method: "POST",
      headers: { "content-length": String(65 * 1024 * 1024), "content-type": "application/json" },
    });
    expect([declared.status, codeOf(declared)]).toEqual([413, "LABORO_BODY_TOO_LARGE"]);
    expect(declared.text).toContain("the body is larger than 67108864 bytes");
    expect((await ask(`${broker.url}/healthz`)).status).toBe(200);
  });

  it("of a submission may be large", async () => {
    const { broker } = await openTestBroker();
    const api = apiOf(broker);
    const entries = Array.from({ length: 200_000 }, (_, i) => `entry number ${i}`);
    const answer = await api("/jobs", post({ recipe: TRUE, entries, held: true }));
    expect([answer.status, answer.json]).toEqual([200, { job: 1 }]);
    expect((await api("/jobs/1/entries?from=199999")).json).toEqual({ entries: ["entry number 199999"] });
  });

  it("of more than a megabyte is read for the operation that it was sent to", async () => {
    const { broker } = await openTestBroker();
    const api = apiOf(broker);
    const entries = Array.from({ length: 100_000 }, (_, i) => `entry number ${i}`);
    await api("/jobs", post({ recipe: TRUE, entries: ["first"], open: true, held: true }));
    const appended = await api("/jobs/1/append", post({ entries }));
    expect([appended.status, appended.json]).toEqual([200, { first: 1, count: 100_000 }]);
    // A member that only a submission has makes no job.
    const wrong = await api("/jobs/1/append", post({ recipe: TRUE, entries }));
    expect([wrong.status, codeOf(wrong)]).toEqual([400, "LABORO_BAD_INPUT"]);
    // In JSON a line end takes two bytes.
    const content = `#!/bin/sh\n${"# comment\n".repeat(100_000)}`;
    const schedule = { cron: "0 0 1 1 *", job: { recipe: { kind: "script", type: "sh", content } } };
    expect((await api("/schedules/large", post(schedule))).status).toBe(200);
    expect((await api("/jobs")).json).toMatchObject({ jobs: [{ id: 1, count: 100_001 }] });
  });

  it("of a request to a service may be large, both ways", async () => {
    const { broker, worker } = await openTestBroker();
    worker({ services: { echo: (body) => body } });
    const body = Buffer.alloc(5_000_000, 0xfe);
    const answer = await apiOf(broker)("/services/echo", {
      method: "POST",
      body,
      headers: { "content-type": "image/png" },
    });
    expect(answer.status).toBe(200);
    expect(answer.bytes.equals(body)).toBe(true);
  });
});

describe("a connection", () => {
  it("on which the headers do not end, or nothing comes, is closed", async () => {
    const { broker } = await openTestBroker({ connectionBounds: { greetingTimeoutMs: 1_000 } });
    const port = Number(new URL(broker.url).port);
    const begun = performance.now();
    const answerTo = (first: string, drip: string): Promise<string> =>
      new Promise((resolve) => {
        let text = "";
        const socket = connect(port, "127.0.0.1", () => socket.write(first));
        const dripping = setInterval(() => socket.write(drip), 200);
        socket.setEncoding("latin1").on("data", (part: string) => (text += part));
        socket.on("error", () => {});
        socket.on("close", () => {
          clearInterval(dripping);
          resolve(text);
        });
      });
    const [slow] = await Promise.all([
      answerTo("GET /healthz HTTP/1.1\r\nhost: localhost\r\n", "x: y\r\n"),
      answerTo("", ""),
      answerTo("\x16\x03\x01", ""),
    ]);
    expect(slow).toContain("408");
    expect(performance.now() - begun).toBeLessThan(9_000);
  });
});

describe("a broker that stops", () => {
  it("does not wait for who waits", async () => {
    const { broker, client } = await openTestBroker();
    const api = apiOf(broker);
    const job = await client.submit({ recipe: TRUE });
    const polls = [
      api(`/jobs/${job.id}/wait`),
      api("/events?waitMs=60000"),
      api("/services/none", { method: "POST", body: "" }),
    ].map((one) =>
      one.then(
        ({ status }) => status,
        () => "cut",
      ),
    );
    await until("all three wait", () => {
      const { jobs, events, state } = broker.core;
      return jobs.endWatchers.size === 1 && events.followers.count === 1 && state.requests.size === 1;
    });
    const begun = performance.now();
    await broker.stop();
    // One of them would wait for a minute.
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(await Promise.all(polls)).toEqual(["cut", "cut", 503]);
    await expect(ask(`${broker.url}/healthz`)).rejects.toThrow();
  });
});
