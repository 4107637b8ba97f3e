import { describe, expect, it } from "vitest";
import { BrowserLogin, COOKIE_MS } from "../../src/broker/access/browser-login.js";
import { apiOf, ask, openListener, post } from "./kit.js";

describe("a browser", () => {
  it("is let in by a link that works once, with the role of who made it", async () => {
    const { broker } = await openListener();
    const api = apiOf(broker);
    const { json } = await api("/login-link", { ...post(), token: broker.tokenOf("read") });
    const { url } = json as { url: string };
    const entered = await ask(url);
    expect([entered.status, entered.headers.location]).toEqual([303, "/"]);
    const [set = ""] = entered.headers["set-cookie"] ?? [];
    expect(set).toMatch(/^laboro=read\..*; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+$/);
    const cookie = set.split(";", 1)[0] ?? "";
    expect((await ask(`${broker.url}/`, { headers: { cookie } })).status).toBe(200);
    expect((await ask(`${broker.url}/api/v1/jobs`, { headers: { cookie } })).status).toBe(200);
    expect((await ask(`${broker.url}/api/v1/clean`, { ...post(), headers: { cookie } })).status).toBe(403);
    expect((await ask(url)).status).toBe(401);
    expect((await ask(`${broker.url}/login?code=guess`)).status).toBe(401);
    expect((await ask(`${broker.url}/login`)).status).toBe(401);
  });

  it("without a cookie is told how to get in", async () => {
    const { broker } = await openListener();
    const page = await ask(`${broker.url}/`);
    expect([page.status, page.headers["content-type"]]).toEqual([401, "text/html; charset=utf-8"]);
    expect(page.text).toContain("laboro open");
    expect(page.text).not.toContain("Workers");
  });

  it("is refused where a page from elsewhere makes it ask", async () => {
    const { broker } = await openListener();
    const [set = ""] = (await ask(broker.newLoginLink("admin").url)).headers["set-cookie"] ?? [];
    const cookie = set.split(";", 1)[0] ?? "";
    const host = new URL(broker.url).host;
    const status = async (headers: Readonly<Record<string, string>>): Promise<number> =>
      (
        await ask(`${broker.url}/api/v1/clean`, {
          ...post(),
          headers: { cookie, "content-type": "application/json", ...headers },
        })
      ).status;
    expect(await status({ origin: `http://${host}` })).toBe(200);
    expect(await status({ origin: "http://evil.example" })).toBe(403);
    expect(await status({ origin: "null" })).toBe(403);
    expect(await status({ origin: `http://${host}0` })).toBe(403);
    expect(await status({ "sec-fetch-site": "cross-site" })).toBe(403);
    expect(await status({ "sec-fetch-site": "same-origin" })).toBe(200);
    expect(await status({ host: "evil.example" })).toBe(421);
  });
});

describe("the cookie", () => {
  it("is good for its role and its time, and for nothing that was made up", () => {
    let now = 1_000;
    const entry = new BrowserLogin("secret", () => now);
    const { code } = entry.newCode("client");
    const cookie = (entry.exchange(code, true) ?? "").split(";", 1)[0] ?? "";
    expect(entry.roleOf(`other=1; ${cookie}`)).toBe("client");
    expect(entry.roleOf(cookie.replace("client", "admin"))).toBeUndefined();
    expect(entry.roleOf(`${cookie}x`)).toBeUndefined();
    expect(new BrowserLogin("another", () => now).roleOf(cookie)).toBeUndefined();
    expect(new BrowserLogin("secret", () => now).roleOf(cookie)).toBe("client");
    now -= 1;
    expect(entry.roleOf(cookie)).toBeUndefined();
    now += 1 + COOKIE_MS;
    expect(entry.roleOf(cookie)).toBeUndefined();
    for (const odd of [undefined, "", "laboro", "laboro=", "laboro=a.b.c", "laboro=admin.99999999999999."])
      expect(entry.roleOf(odd)).toBeUndefined();
  });

  it("comes of a code that is young, and with TLS stays with TLS", () => {
    let now = 0;
    const entry = new BrowserLogin("secret", () => now);
    expect(entry.exchange(entry.newCode("read").code, true)).toContain("; Secure");
    const { code } = entry.newCode("read");
    now = 6 * 60_000;
    expect(entry.exchange(code, false)).toBeUndefined();
    const first = entry.newCode("read").code;
    for (let i = 0; i < 200; i++) entry.newCode("read");
    expect(entry.exchange(first, false)).toBeUndefined();
  });
});
