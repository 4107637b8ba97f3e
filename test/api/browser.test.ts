import { describe, expect, it } from "vitest";
import { BrowserLogin, SESSION_MS } from "../../src/broker/access/auth.js";
import { apiOf, ask, codeOf, openListener, post } from "./kit.js";

/** As the dashboard does it: the code is sent where a token is. */
const login = (url: string, code: string) => ask(`${url}/login`, { method: "POST", token: code });

describe("a browser", () => {
  it("gets a session by a link that works once, with the role of the token that made it, and no cookie", async () => {
    const { broker } = await openListener();
    const { json } = await apiOf(broker)("/login-link", { ...post(), token: broker.tokenOf("read") });
    const { url, code } = json as { url: string; code: string };
    expect(url).toBe(`${broker.url}/#login=${code}`);
    const entered = await login(broker.url, code);
    expect([entered.status, entered.headers["set-cookie"], entered.headers["cache-control"]]).toEqual([
      200,
      undefined,
      "no-store",
    ]);
    const { token, expires } = entered.json as { token: string; expires: number };
    expect(expires).toBeGreaterThan(Date.now() + SESSION_MS - 60_000);
    for (const path of ["/plain", "/metrics", "/api/v1/jobs"])
      expect([path, (await ask(`${broker.url}${path}`, { token })).status]).toEqual([path, 200]);
    expect((await ask(`${broker.url}/api/v1/clean`, { ...post(), token })).status).toBe(403);
    for (const wrong of [code, "guess", "", token]) {
      const refused = await login(broker.url, wrong);
      expect([wrong, refused.status, codeOf(refused)]).toEqual([wrong, 401, "LABORO_BAD_TOKEN"]);
    }
  });

  it("does not use up the code by looking at the link, which has it behind the #", async () => {
    const { broker } = await openListener();
    const { url, code } = broker.newLoginLink("read");
    for (const method of ["GET", "HEAD"]) await ask(url, { method, headers: { accept: "text/html" } });
    for (const method of ["GET", "HEAD", "PUT"]) {
      const { status } = await ask(`${broker.url}/login`, { method, token: code });
      expect([method, status]).toEqual([method, method === "PUT" ? 405 : 404]);
    }
    expect((await login(broker.url, code)).status).toBe(200);
  });

  it("is asked for nothing by a cookie, also not by one that holds a session", async () => {
    const { broker } = await openListener();
    const { token } = (await login(broker.url, broker.newLoginLink("admin").code)).json as { token: string };
    for (const path of ["/plain", "/metrics", "/api/v1/jobs"]) {
      const { status } = await ask(`${broker.url}${path}`, { headers: { cookie: `laboro=${token}` } });
      expect([path, status]).toEqual([path, 401]);
    }
  });

  it("without a token is told how to log in by the page without a script", async () => {
    const { broker } = await openListener();
    for (const path of ["/plain", "/"]) {
      const page = await ask(`${broker.url}${path}`);
      expect([page.status, page.headers["content-type"]]).toEqual([401, "text/html; charset=utf-8"]);
      expect(page.text).toContain("laboro open");
      expect(page.text).toContain("Authorization: Bearer TOKEN");
      expect(page.text).not.toContain("Workers");
    }
  });
});

describe("a session token", () => {
  it("is valid for its role and its time, and for nothing that was made up", () => {
    let now = 1_000;
    const logins = new BrowserLogin("secret", () => now);
    const { token = "" } = logins.exchange(logins.newCode("client").code) ?? {};
    expect(logins.roleOf(token)).toBe("client");
    expect(logins.roleOf(token.replace("client", "admin"))).toBeUndefined();
    expect(logins.roleOf(`${token}x`)).toBeUndefined();
    expect(new BrowserLogin("another", () => now).roleOf(token)).toBeUndefined();
    expect(new BrowserLogin("secret", () => now).roleOf(token)).toBe("client");
    now -= 1;
    expect(logins.roleOf(token)).toBeUndefined();
    now += 1 + SESSION_MS;
    expect(logins.roleOf(token)).toBeUndefined();
    for (const odd of ["", "laboro", "a.b.c", "admin.99999999999999.", "admin.99999999999999"])
      expect(logins.roleOf(odd)).toBeUndefined();
  });

  it("is given for a code of the last five minutes, and only the last hundred codes are kept", () => {
    let now = 0;
    const logins = new BrowserLogin("secret", () => now);
    const { code } = logins.newCode("read");
    now = 6 * 60_000;
    expect(logins.exchange(code)).toBeUndefined();
    const first = logins.newCode("read").code;
    for (let i = 0; i < 200; i++) logins.newCode("read");
    expect(logins.exchange(first)).toBeUndefined();
  });

  it("opens no link: those take tokens only", async () => {
    const { broker } = await openListener();
    const { token } = (await login(broker.url, broker.newLoginLink("admin").code)).json as { token: string };
    const headers = {
      ...{ connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" },
      ...{ "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol": "laboro.1" },
    };
    expect((await ask(`${broker.url}/node/persistent`, { token, headers })).status).toBe(401);
  });
});
