/** Who may do what: every operation with every role, over HTTP and over the link; JOIN and requests too. */
import { describe, expect, it } from "vitest";
import { ROLES, type Role } from "../../src/broker/access/tokens.js";
import { OPERATIONS } from "../../src/broker/operations/index.js";
import { connect } from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import { until } from "../support/wait.js";
import { apiOf, ask, codeOf, openTestBroker } from "./kit.js";

const ALLOWED: Readonly<Record<string, readonly Role[]>> = {
  any: ["admin", "client", "worker", "read", "fuq"],
  read: ["admin", "client", "read", "fuq"],
  client: ["admin", "client", "fuq"],
  admin: ["admin"],
};

describe("a role", () => {
  it("may do what it may, and nothing else, over HTTP and over the link", async () => {
    const { broker } = await openTestBroker();
    for (const role of ROLES) {
      const token = broker.tokenOf(role) ?? "";
      const client = await connect({ broker: broker.url, token });
      const api = apiOf(broker);
      for (const [name, { role: needed, method, path }] of Object.entries(OPERATIONS)) {
        const allowed = ALLOWED[needed]?.includes(role);
        // What it is asked for is not there: nothing happens, but who may not is refused before that is looked at.
        const { status } = await api(
          path
            .replace("{job}", "9")
            .replace("{index}", "0")
            .replace(/\{\w+\}/, "x") + (name === "request" ? "?timeoutMs=1" : ""),
          { method, token },
        );
        expect([role, name, status === 403]).toEqual([role, name, !allowed]);
        const code = await client.ask(name as "cancel", { job: -1 }).then(
          () => "done",
          (cause: { code: string }) => cause.code,
        );
        expect([role, name, code === "LABORO_FORBIDDEN"]).toEqual([role, name, !allowed]);
      }
      client.close();
    }
  });

  it("is needed to ask services over the link, and to get the files of tasks", async () => {
    const { broker } = await openTestBroker();
    const client = await connect({ broker: broker.url, token: broker.tokenOf("read") ?? "" });
    await expect(client.ask("returnedFiles", { job: 1, index: 0 })).rejects.toMatchObject({ code: "LABORO_FORBIDDEN" });
    await expect(client.request("any")).rejects.toMatchObject({ code: "LABORO_FORBIDDEN" });
    client.close();
  });

  it.each([
    ["worker", "joined"],
    ["fuq", "joined"],
    ["admin", "joined"],
    ["client", "LABORO_FORBIDDEN"],
    ["read", "LABORO_FORBIDDEN"],
  ] as const)("decides who may work here: %s is %s", async (role, expected) => {
    const { broker, client } = await openTestBroker();
    const token = broker.tokenOf(role) ?? "";
    let refused: string | undefined;
    const worker = startWorker({ broker: broker.url, token, onRefused: ({ code }) => (refused = code) });
    await until("it joined or was refused", async () => refused !== undefined || (await client.workers()).length > 0);
    await worker.stop({ graceMs: 0 });
    const outcome = refused ?? "joined";
    expect(outcome).toBe(expected);
  });

  it("is not had without a token, and not with one that is not known", async () => {
    const { broker } = await openTestBroker();
    const none = await ask(`${broker.url}/api/v1/status`);
    expect([none.status, codeOf(none), none.headers["www-authenticate"]]).toEqual([
      401,
      "LABORO_BAD_TOKEN",
      expect.stringContaining("Bearer"),
    ]);
    const wrong = await ask(`${broker.url}/api/v1/status`, { token: "guess" });
    expect([wrong.status, codeOf(wrong)]).toEqual([401, "LABORO_BAD_TOKEN"]);
    const odd = await ask(`${broker.url}/api/v1/status`, { headers: { authorization: "Digest x" } });
    expect(odd.status).toBe(401);
  });

  it("is had with the token as the user name, as in a URL", async () => {
    const { broker } = await openTestBroker();
    const basic = Buffer.from(`${broker.token}:`).toString("base64");
    const answer = await ask(`${broker.url}/api/v1/status`, { headers: { authorization: `Basic ${basic}` } });
    expect(answer.status).toBe(200);
  });
});
