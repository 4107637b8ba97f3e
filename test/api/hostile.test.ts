import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { atEnd, openOnce } from "../support/at-end.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, ask, codeOf, messageOf, openTestBroker, post } from "./kit.js";

/** Bytes as they are, and what came back before the connection ended. */
function raw(url: string, bytes: string | Buffer, end = true): Promise<string> {
  const { port } = new URL(url);
  return new Promise((resolve) => {
    let text = "";
    const socket = connect(Number(port), "127.0.0.1", () => (end ? socket.end(bytes) : socket.write(bytes)));
    socket.setEncoding("latin1").on("data", (part: string) => (text += part));
    socket.on("error", () => {});
    socket.on("close", () => resolve(text));
  });
}

describe("input that is not what it should be", () => {
  const setup = openOnce(openTestBroker);
  it.each([
    ["no JSON", "/jobs", { method: "POST", body: "{not json" }],
    ["JSON cut short", "/jobs", { method: "POST", body: '{"recipe":{"kind":"call","service":"x"' }],
    ["a list", "/jobs", { method: "POST", body: "[]" }],
    ["a number", "/jobs", { method: "POST", body: "7" }],
    ["ten thousand brackets", "/jobs", { method: "POST", body: "[".repeat(10_000) }],
    ["deep objects", "/jobs", { method: "POST", body: `${'{"a":'.repeat(50_000)}1${"}".repeat(50_000)}` }],
    [
      "a prototype",
      "/jobs",
      { method: "POST", body: '{"recipe":{"kind":"call","service":"x"},"__proto__":{"count":5}}' },
    ],
    ["a constructor", "/jobs", { method: "POST", body: '{"recipe":{"kind":"call","service":"x"},"constructor":1}' }],
    ["a recipe of text", "/jobs", { method: "POST", body: { recipe: "true" } }],
    ["a count of text", "/jobs", { method: "POST", body: { recipe: TRUE, count: "3" } }],
    ["a count of 1e400", "/jobs", { method: "POST", body: '{"recipe":{"kind":"call","service":"x"},"count":1e400}' }],
    [
      "half a surrogate pair in an argument",
      "/jobs",
      { method: "POST", body: '{"recipe":{"kind":"command","argv":["echo","\\ud800"]}}' },
    ],
    [
      "half a surrogate pair in an entry",
      "/jobs",
      { method: "POST", body: '{"recipe":{"kind":"call","service":"x"},"entries":["\\ud800"]}' },
    ],
    [
      "more amounts than a message holds",
      "/jobs",
      {
        method: "POST",
        body: { recipe: TRUE, needs: Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`r${i}`, 1])) },
      },
    ],
    ["a huge count", "/jobs", { method: "POST", body: { recipe: TRUE, count: 1e15 } }],
    [
      "no base64",
      "/jobs",
      { method: "POST", body: { recipe: { kind: "script", type: ".sh", content: { base64: "*** no ***" } } } },
    ],
    [
      "an array that ends before it begins",
      "/jobs",
      { method: "POST", body: { recipe: { kind: "command", argv: ["a"], array: [{ first: 5, last: 1 }] } } },
    ],
    [
      "an array of too many",
      "/jobs",
      { method: "POST", body: { recipe: { kind: "command", argv: ["a"], array: [{ first: 0, last: 1e10 }] } } },
    ],
    ["a job of text", "/jobs/one", {}],
    ["a job of 0", "/jobs/0", {}],
    ["a job beyond all numbers", "/jobs/99999999999999999999", {}],
    ["half a job", "/jobs/1.5", {}],
    ["a negative limit", "/jobs?limit=-1", {}],
    ["a limit of 1e99", "/jobs?limit=1e99", {}],
    ["an unknown question", "/jobs?colour=red", {}],
    ["a prototype in the query", "/jobs?__proto__=1", {}],
    ["a limit given twice", "/jobs?limit=1&limit=2", {}],
    ["the job in the path and in the body", "/jobs/1/hold", { method: "POST", body: { job: 2 } }],
    ["ranges upside down", "/jobs/1/cancel", { method: "POST", body: { tasks: [{ first: 3, last: 1 }] } }],
    ["an end that is none", "/jobs/1/rerun", { method: "POST", body: { states: ["odd"] } }],
    ["a wait for ever", "/events?waitMs=99999999", {}],
    ["an odd service time", "/services/x?timeoutMs=soon", { method: "POST", body: "x" }],
  ])("is refused, with what was expected: %s", async (_what, path, question) => {
    const { broker } = setup();
    const api = apiOf(broker);
    const answer = await api(path, question);
    expect([answer.status, codeOf(answer)]).toEqual([400, "LABORO_BAD_INPUT"]);
    expect(messageOf(answer).length).toBeLessThan(700);
    expect(answer.headers["content-type"]).toContain("application/json");
    expect((await api("/jobs")).json).toEqual({ jobs: [] });
  });

  it("says which value, what was expected and what came", async () => {
    const { broker } = setup();
    const api = apiOf(broker);
    const answer = await api("/jobs", post({ recipe: TRUE, count: 0 }));
    expect(messageOf(answer)).toBe("count: expected a whole number from 1 to 1000000000, got 0");
  });

  it("that is not JSON by its own word is not read", async () => {
    const { broker } = setup();
    const api = apiOf(broker);
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]) {
      const answer = await api("/jobs", { ...post({ recipe: TRUE }), headers: { "content-type": type } });
      expect([answer.status, codeOf(answer)]).toEqual([415, "LABORO_BAD_INPUT"]);
    }
  });
});

describe("addresses that are not there", () => {
  const setup = openOnce(openTestBroker);
  it.each([
    "/api/v1",
    "/api/v1/",
    "/api/v2/status",
    "/api/v1/jobs/1/../../../../etc/passwd",
    "/api/v1/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/api/v1/jobs/%00",
    "/api/v1/%zz",
    "/access.json",
    "/api/v1/status/",
    "//evil.example/",
  ])("are refused: %s", async (path) => {
    const { broker } = setup();
    const said = await raw(
      broker.url,
      `GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${broker.token}\r\nconnection: close\r\n\r\n`,
      false,
    );
    expect(said).toMatch(/^HTTP\/1\.1 (400|404) /);
    expect(said).not.toContain("root:");
    expect(said).not.toContain(broker.token);
  });

  it("have methods of their own", async () => {
    const { broker } = setup();
    const api = apiOf(broker);
    for (const method of ["PUT", "PATCH", "DELETE", "OPTIONS"])
      expect((await api("/status", { method })).status).toBe(404);
    expect((await ask(`${broker.url}/`, { method: "POST", token: broker.token })).status).toBe(405);
  });
});

describe("bytes that are not HTTP", () => {
  it("end their own connection and nothing else", async () => {
    const { broker } = await openTestBroker();
    const said = [
      await raw(broker.url, "nonsense\r\n\r\n"),
      await raw(broker.url, `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${"y".repeat(100_000)}\r\n\r\n`),
      await raw(
        broker.url,
        "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
      ),
      await raw(broker.url, "GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\nhost: other\r\n\r\n"),
    ];
    expect(said.map((text) => text.slice(9, 12))).toEqual(["400", "431", "400", expect.stringMatching(/^4/)]);
    expect((await ask(`${broker.url}/healthz`)).status).toBe(200);
  });

  it("put into a name do not become headers or HTML", async () => {
    const { broker, client } = await openTestBroker();
    const name = `<script>alert(1)</script>\r\nset-cookie: a=b`;
    await client.submit({ recipe: { kind: "command", argv: ["<img src=x>"] }, name });
    const page = await ask(`${broker.url}/`, { token: broker.token });
    expect(page.status).toBe(200);
    expect(page.text).not.toContain("<script>");
    expect(page.text).not.toContain("<img");
    expect(page.text).toContain("&lt;script&gt;");
    expect(page.headers["set-cookie"]).toBeUndefined();
    expect(page.headers["content-security-policy"]).toContain("default-src 'none'");
    const api = apiOf(broker);
    const odd = await api(`/services/${encodeURIComponent("a\r\nset-cookie: x=y")}?timeoutMs=1`, {
      method: "POST",
      body: "x",
    });
    expect([odd.status, odd.headers["set-cookie"]]).toEqual([504, undefined]);
  });
});

describe("an offer of another protocol", () => {
  it.each([["with its body"], ["before its body"]])(
    "comes %s, and the request is answered as without it, and the next one on its connection",
    async (when) => {
      const { broker } = await openTestBroker();
      const { port } = new URL(broker.url);
      const body = JSON.stringify({ recipe: TRUE, held: true });
      const head = [
        "POST /api/v1/jobs HTTP/1.1",
        ...["host: localhost", `authorization: Bearer ${broker.token}`, "content-type: application/json"],
        ...["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAIAAAAB"],
        `content-length: ${body.length}`,
      ].join("\r\n");
      const socket = connect(Number(port), "127.0.0.1");
      atEnd(() => socket.destroy());
      let text = "";
      socket.setEncoding("latin1").on("data", (part: string) => (text += part));
      const answers = (): number => text.split("HTTP/1.1 200 OK").length - 1;
      for (let number = 1; number <= 3; number++) {
        if (when === "with its body") socket.write(`${head}\r\n\r\n${body}`);
        else {
          socket.write(`${head}\r\n\r\n${body.slice(0, 5)}`);
          await apiOf(broker)("/status");
          socket.write(body.slice(5));
        }
        await until("it is answered", () => answers() === number || socket.closed);
        expect(text).toContain(`{"job":${number}}`);
      }
    },
  );
});
