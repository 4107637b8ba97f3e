import { describe, expect, it } from "vitest";
import { LaboroError } from "../../src/base/errors.js";
import { SharedResponses } from "../../src/broker/api/shared-responses.js";
import { OPERATIONS_BY_NAME } from "../../src/broker/operations/index.js";
import { API_ROUTES } from "../../web/src/api-routes.js";
import { until } from "../support/wait.js";
import { apiOf, ask, openListener, openTestBroker } from "./kit.js";

const HTML = { accept: "text/html,application/xhtml+xml" };

describe("the dashboard's files", () => {
  it("are served to everybody, with a policy that allows nothing from elsewhere and nothing inline", async () => {
    const { broker } = await openListener();
    for (const path of ["/", "/ui/", "/ui/jobs/7/tasks/3"]) {
      const page = await ask(`${broker.url}${path}`, { headers: HTML });
      expect([path, page.status, page.headers["content-type"]]).toEqual([path, 200, "text/html; charset=utf-8"]);
      const policy = page.headers["content-security-policy"] ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).not.toMatch(/unsafe|https?:|data:|\*/);
      expect(page.text).not.toMatch(/<style|<script>|\sstyle=|\son\w+=|https?:\/\//);
    }
    const { text } = await ask(`${broker.url}/`, { headers: HTML });
    const files = Array.from(text.matchAll(/(?:src|href)="(\/ui\/[^"]+)"/g), ([, path = ""]) => path);
    expect(files.length).toBeGreaterThanOrEqual(4);
    for (const path of files) {
      const file = await ask(`${broker.url}${path}`);
      expect([path, file.status]).toEqual([path, 200]);
      expect(file.headers["x-content-type-options"]).toBe("nosniff");
      expect(file.headers["cache-control"]).toBe(
        path.startsWith("/ui/assets/") ? "private, max-age=31536000, immutable" : "no-store",
      );
    }
  });

  it("are none but those of the build, whatever is asked for", async () => {
    const { broker } = await openListener();
    for (const path of [
      "/ui/assets/none.js",
      "/ui/assets/../../package.json",
      "/ui/%2e%2e/%2e%2e/package.json",
      "/ui/assets/%2fetc%2fpasswd",
      "/ui/index.html",
      "/ui/none.svg",
    ]) {
      const { status, text } = await ask(`${broker.url}${path}`);
      expect([path, status]).toEqual([path, 404]);
      expect(text).not.toContain("laboro-tests");
    }
    expect((await ask(`${broker.url}/ui/jobs`, { method: "POST" })).status).toBe(405);
  });

  it("are not for who asks for no HTML: that gets the page without a script", async () => {
    const { broker } = await openListener();
    for (const [path, headers] of [
      ["/", {}],
      ["/plain", HTML],
    ] as const) {
      const page = await ask(`${broker.url}${path}`, { token: broker.tokenOf("read"), headers });
      expect([path, page.status]).toEqual([path, 200]);
      expect(page.text).toContain("<h2>Workers</h2>");
      expect(page.text).not.toContain("<script");
    }
  });

  it("hold nothing of the broker: what they ask for needs a token, which a page from elsewhere cannot send", async () => {
    const { broker } = await openListener();
    const answer = (path: string, headers: Readonly<Record<string, string>>, method = "GET") =>
      ask(`${broker.url}${path}`, { method, headers });
    for (const path of ["/api/v1/overview", "/metrics"]) {
      expect((await answer(path, {})).status).toBe(401);
      // Without CORS a browser sends no Authorization header for another origin, and shows it no answer.
      const asked = { origin: "http://evil.example", "access-control-request-headers": "authorization" };
      const { status, headers } = await answer(path, asked, "OPTIONS");
      expect([status, headers["access-control-allow-origin"]]).toEqual([401, undefined]);
      expect((await answer(path, { host: "evil.example" })).status).toBe(421);
    }
    expect((await answer("/ui/jobs", { host: "evil.example" })).status).toBe(421);
  });
});

describe("the dashboard's table of addresses", () => {
  it("is the broker's", () => {
    for (const [name, [method, path]] of Object.entries(API_ROUTES)) {
      expect([name, OPERATIONS_BY_NAME.get(name)?.method, OPERATIONS_BY_NAME.get(name)?.path]).toEqual([
        name,
        method,
        path,
      ]);
    }
  });
});

describe("a look that is shared", () => {
  const shared = { headers: { "laboro-cache": "shared" } };

  it("is the same for all for a second, has a tag, and is nothing where nothing has changed", async () => {
    const { broker } = await openListener();
    const api = apiOf(broker);
    const first = await api("/jobs", shared);
    const tag = first.headers.etag ?? "";
    expect([first.status, first.json]).toEqual([200, { jobs: [] }]);
    const again = await api("/jobs", { headers: { ...shared.headers, "if-none-match": tag } });
    expect([again.status, again.text]).toEqual([304, ""]);
    expect((await api("/jobs")).headers.etag).toBeUndefined();
  });

  it("is refused to who may not look, and its question is read as any other", async () => {
    const { broker } = await openListener();
    const api = apiOf(broker);
    await api("/jobs", shared);
    expect((await api("/jobs", { ...shared, token: broker.tokenOf("worker") })).status).toBe(403);
    expect((await api("/jobs?limit=none", shared)).status).toBe(400);
    expect((await api("/jobs/77", shared)).status).toBe(404);
    // What waits for something is never shared.
    expect((await api("/events?after=0", shared)).headers.etag).toBeUndefined();
  });

  it("is made once however many ask, again after a second, and rests in between", async () => {
    let now = 0;
    const rests: number[] = [];
    const looks = new SharedResponses(
      () => now,
      async (ms) => {
        rests.push(ms);
      },
    );
    let made = 0;
    const make = async (): Promise<string> => {
      now += 25;
      return `made ${++made}`;
    };
    const many = await Promise.all(Array.from({ length: 100 }, () => looks.get("a", make)));
    expect(new Set(many.map(({ text }) => text))).toEqual(new Set(["made 1"]));
    now += 900;
    expect((await looks.get("a", make)).text).toBe("made 1");
    now += 200;
    expect((await looks.get("a", make)).text).toBe("made 2");
    expect(rests).toEqual([100, 100]);
  });

  it("is made one at a time, and too many that wait are refused", async () => {
    const looks = new SharedResponses();
    let under = 0;
    let most = 0;
    const open: (() => void)[] = [];
    const make = async (): Promise<string> => {
      most = Math.max(most, ++under);
      await new Promise<void>((resolve) => open.push(resolve));
      under--;
      return "made";
    };
    const asked = Array.from({ length: 150 }, (_, at) => looks.get(String(at), make).catch((cause: unknown) => cause));
    const refused = (await Promise.all(asked.slice(101))).filter((one) => one instanceof LaboroError);
    expect(refused.map((one) => (one as LaboroError).code)).toEqual(new Array(49).fill("LABORO_QUEUE_FULL"));
    const release = setInterval(() => open.shift()?.(), 1);
    await Promise.all(asked);
    clearInterval(release);
    expect(most).toBe(1);
  });

  it("is not kept when too many characters came after it", async () => {
    const looks = new SharedResponses(
      () => 0,
      async () => {},
    );
    const megabyte = "x".repeat(1024 * 1024);
    for (let at = 0; at < 100; at++) await looks.get(`page ${at}`, async () => megabyte);
    expect(looks.size).toBe(32);
    let made = 0;
    const make = async (): Promise<string> => `made ${++made}`;
    expect((await looks.get("page 99", make)).text).toBe(megabyte);
    expect((await looks.get("page 0", make)).text).toBe("made 1");
  });

  it("that fails is tried again by the next", async () => {
    const looks = new SharedResponses();
    await expect(looks.get("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect((await looks.get("a", async () => "yes")).text).toBe("yes");
  });
});

describe("connections", () => {
  it("are recorded from the first look on, end with their connection, and are an admin's to see", async () => {
    const { broker, client, worker } = await openTestBroker();
    const one = worker({ name: "one", services: { shout: (body) => Buffer.from(body).toString().toUpperCase() } });
    await until("it has joined", () => one.joined);
    const { connections } = await client.ask("connections", { find: "ONE" });
    expect(connections).toMatchObject([{ protocol: "laboro.1", peer: "one", address: "127.0.0.1", recording: false }]);
    const id = connections[0]?.id ?? 0;
    await client.request("shout", "unheard");
    expect(await client.ask("connection", { id })).toMatchObject({ messages: [], closed: false, recording: true });
    await client.request("shout", "heard");
    const { messages } = await client.ask("connection", { id });
    const told = messages.filter(({ name }) => name !== "HEARTBEAT");
    expect(told.map(({ name, from }) => [name, from])).toEqual([
      ["CALL", "broker"],
      ["REPLY", "peer"],
    ]);
    expect(told.map(({ fields }) => fields.body)).toEqual(["heard", "HEARD"]);
    const last = messages.at(-1)?.number ?? 0;
    expect((await client.ask("connection", { id, after: last })).messages.filter((one) => one.number <= last)).toEqual(
      [],
    );
    const read = { token: broker.tokenOf("client") };
    expect((await apiOf(broker)(`/connections/${id}`, read)).status).toBe(403);
    expect((await apiOf(broker)("/connections", read)).status).toBe(200);
    await one.stop({ graceMs: 0 });
    await until("it is over", async () => (await client.ask("connection", { id })).closed);
    const { messages: lastWords } = await client.ask("connection", { id, after: last });
    expect(lastWords.map(({ name }) => name)).toContain("LEAVING");
    expect((await client.ask("connections", {})).connections.map(({ peer }) => peer)).not.toContain("one");
    expect((await apiOf(broker)("/connections/4711")).status).toBe(400);
  });
});
