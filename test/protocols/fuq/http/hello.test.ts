import { connect as connectTls } from "node:tls";
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { openListener } from "./kit.js";

const hello = (auth: string, more: object = {}): object => ({
  auth,
  node: "vm",
  pid: 21677,
  session: "",
  nproc: 2,
  ...more,
});

describe("/hello", () => {
  it("gives a name, a session and a cookie, as the original writes them", async () => {
    const listener = await openListener();
    const answer = await listener.asker().post("/hello", hello(listener.password));
    expect(answer.status).toBe(200);
    expect(answer.text).toMatch(/^\{"Name":"vm:21677:1","Session":"[\w+/]{22}","Cookie":"[\w+/]{22}"\}\n$/);
    const { Cookie } = answer.json as { Cookie: string };
    const [set = ""] = answer.headers["set-cookie"] ?? [];
    const [, cookie, expires = ""] = /^fuq_foreman_auth=([^;]+); Path=\/; Expires=([^;]+); HttpOnly$/.exec(set) ?? [];
    expect(cookie).toBe(Cookie);
    const days = (Date.parse(expires) - Date.now()) / 86_400_000;
    expect(days).toBeGreaterThan(13.9);
    expect(days).toBeLessThan(14.1);
  });

  it("never gives one name twice, and takes a name that a worker brings", async () => {
    const listener = await openListener();
    const names = await Promise.all(Array.from({ length: 5 }, () => listener.asker().hello(listener.password)));
    expect([...names].sort()).toEqual([1, 2, 3, 4, 5].map((number) => `vm:27311:${number}`));
    expect(await listener.asker().hello(listener.password, 1, { unique_name: "mine" })).toBe("mine");
    expect(await listener.asker().hello(listener.password, 1, { unique_name: "mine" })).toBe("vm:27311:6");
  });

  it("refuses in the words of the original", async () => {
    const listener = await openListener();
    const asker = listener.asker();
    const said = async (method: string, path: string, body?: string) => {
      const { status, text } = await asker.ask(method, path, body);
      return [status, text];
    };
    expect(await said("POST", "/hello", JSON.stringify(hello("wrong")))).toEqual([403, "403 access forbidden\n"]);
    expect(await said("POST", "/hello", "{")).toEqual([400, "400 bad request\n"]);
    expect(await said("POST", "/hello", '{"auth":1}')).toEqual([400, "400 bad request\n"]);
    expect(await said("GET", "/hello")).toEqual([405, "405 method GET not allowed\n"]);
    expect(await said("POST", "/client/nothing", "{}")).toEqual([404, "404 page not found\n"]);
    expect(await said("POST", "/client/job/list", "{}")).toEqual([403, "403 access forbidden\n"]);
    expect(await said("POST", "/hello", `"${"x".repeat(2_000_000)}"`)).toEqual([400, "400 bad request\n"]);
  });

  it("takes no token that may not work, and no client whose token may not ask", async () => {
    const listener = await openListener();
    expect((await listener.asker().post("/hello", hello(listener.broker.tokenOf("client") ?? ""))).status).toBe(403);
    const auth = { password: listener.broker.tokenOf("worker"), client: "x" };
    expect((await listener.asker().post("/client/job/list", { auth, msg: {} })).status).toBe(403);
  });

  it("is answered with TLS, by the broker's own CA, and speaks HTTP/1.1 only", async () => {
    const listener = await openListener({ tls: "on" });
    const asker = listener.asker("https");
    expect(await asker.hello(listener.password)).toBe("vm:27311:1");
    const port = Number(new URL(listener.broker.url).port);
    const protocol = await new Promise((resolve, reject) => {
      const socket = connectTls({
        port,
        host: "127.0.0.1",
        rejectUnauthorized: false,
        ALPNProtocols: ["h2", "http/1.1"],
      });
      socket.once("secureConnect", () => {
        resolve(socket.alpnProtocol);
        socket.destroy();
      });
      socket.once("error", reject);
    });
    expect(protocol).toBe("http/1.1");
  });
});

describe("a cookie", () => {
  it("is asked for by /node/persistent and by the questions of workers: 401 without, 403 where it is not known", async () => {
    const listener = await openListener();
    const asker = listener.asker();
    expect(await asker.ask("GET", "/node/persistent")).toMatchObject({ status: 401, text: "missing session cookie\n" });
    expect(await asker.post("/job/request", { nproc: 1 })).toMatchObject({ status: 401 });
    asker.cookie = "A".repeat(22);
    expect(await asker.ask("GET", "/node/persistent")).toMatchObject({ status: 403, text: "cannot validate cookie\n" });
    expect(await asker.post("/job/update", {})).toMatchObject({ status: 403 });
    asker.cookie = "A".repeat(129);
    expect(await asker.post("/job/request", { nproc: 1 })).toMatchObject({ status: 401 });
    await asker.hello(listener.password);
    expect(await asker.ask("GET", "/node/persistent")).toMatchObject({ status: 400, text: "400 bad request\n" });
  });

  it("is asked for by a WebSocket, too", async () => {
    const listener = await openListener();
    const asker = listener.asker();
    await asker.hello(listener.password);
    const opened = (cookie?: string): Promise<string> =>
      new Promise((resolve) => {
        const headers = cookie === undefined ? {} : { cookie: `other=1; fuq_foreman_auth=${cookie}` };
        const socket = new WebSocket(`${listener.broker.url.replace("http", "ws")}/node/persistent`, { headers });
        socket.on("error", () => {});
        socket.on("unexpected-response", (request, response) => {
          resolve(String(response.statusCode));
          request.destroy();
        });
        socket.on("open", () => {
          resolve(`open ${socket.protocol}${socket.extensions}`);
          socket.terminate();
        });
      });
    expect(await opened()).toBe("401");
    expect(await opened("A".repeat(22))).toBe("403");
    expect(await opened(asker.cookie)).toBe("open ");
  });

  it("is renewed by /node/reauth, for the worker that has it and the password", async () => {
    const listener = await openListener();
    const asker = listener.asker();
    const Name = await asker.hello(listener.password);
    const { cookie = "" } = asker;
    const reauth = (with_: object, auth = listener.password) =>
      asker.post("/node/reauth", {
        cookie,
        msg: { auth, node: "vm", pid: 27311, unique_name: Name, nproc: 1, ...with_ },
      });
    expect((await reauth({ unique_name: "another" })).status).toBe(403);
    expect((await reauth({}, "wrong")).status).toBe(403);
    const answer = await reauth({});
    expect(answer.json).toEqual({ Name, Session: expect.any(String), Cookie: expect.any(String) });
    expect((await asker.ask("GET", "/node/persistent")).status).toBe(403);
    asker.cookie = (answer.json as { Cookie: string }).Cookie;
    expect((await asker.ask("GET", "/node/persistent")).status).toBe(400);
  });

  it("outlives the broker, and its name with it; one that is over is not known", async () => {
    const listener = await openListener();
    const [first, second] = [listener.asker(), listener.asker()];
    const session = ((await first.post("/hello", hello(listener.password))).json as { Session: string }).Session;
    await first.hello(listener.password);
    const name = await second.hello(listener.password);
    await listener.restart();
    expect((await first.ask("GET", "/node/persistent")).status).toBe(400);
    const next = await listener.asker().post("/hello", hello(listener.password, { pid: 27311 }));
    expect(next.json).toMatchObject({ Name: "vm:27311:3", Session: session });
    const { core } = listener.broker;
    const [kept] = (await core.store.keyValues("fuq-cookie")).filter(({ key }) => key === name);
    expect(kept?.value).not.toContain(second.cookie);
    await core.put("fuq-cookie", name, JSON.stringify({ ...JSON.parse(kept?.value ?? ""), expires: 1 }));
    await listener.restart();
    expect((await second.ask("GET", "/node/persistent")).status).toBe(403);
    expect((await first.ask("GET", "/node/persistent")).status).toBe(400);
  });
});
