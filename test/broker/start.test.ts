/** How a broker comes up: its port, its files, and what it does not load. */
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DEFAULT_PORT } from "../../src/broker/options.js";
import { startBroker } from "../../src/server.js";
import { ask, openListener } from "../api/kit.js";

describe("a broker", () => {
  it("moves from its default port where that is taken, and says so", async () => {
    const holder = createServer();
    const held = await new Promise((resolve) =>
      holder.once("error", () => resolve(false)).listen(DEFAULT_PORT, "127.0.0.1", () => resolve(true)),
    );
    const { broker, dir } = await openListener({ port: undefined as unknown as number });
    expect(broker.portChanged).toBe(true);
    expect(broker.url).not.toContain(`:${DEFAULT_PORT}`);
    expect((JSON.parse(readFileSync(join(dir, "access.json"), "utf8")) as { url: string }).url).toBe(broker.url);
    await expect(startBroker({ dir: join(dir, "other"), port: DEFAULT_PORT })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
    if (held === true) holder.close();
  });

  it("keeps its tokens for its owner, over restarts, and takes an access.json of before", async () => {
    const { broker, dir } = await openListener();
    for (const file of ["access.json", "tokens.json"]) expect(statSync(join(dir, file)).mode & 0o777).toBe(0o600);
    const worker = broker.tokenOf("worker");
    await broker.stop();
    writeFileSync(join(dir, "access.json"), JSON.stringify({ url: broker.url, token: broker.token }));
    chmodSync(join(dir, "access.json"), 0o600);
    const again = await startBroker({ dir, port: 0 });
    expect([again.token, again.tokenOf("worker")]).toEqual([broker.token, worker]);
    expect(
      new Set(["admin", "client", "worker", "read", "fuq"].map((role) => again.tokenOf(role as "admin"))).size,
    ).toBe(5);
    await again.stop();
  });

  it("does not start with tokens that cannot be read, rather than make others", async () => {
    const { broker, dir } = await openListener();
    await broker.stop();
    for (const damaged of [
      "{",
      "[]x",
      '[{"role":"king","token":"0123456789abcdef"}]',
      '[{"role":"admin","token":""}]',
    ]) {
      writeFileSync(join(dir, "tokens.json"), damaged);
      await expect(startBroker({ dir, port: 0 })).rejects.toMatchObject({ code: "LABORO_DATA_CORRUPT" });
    }
  });

  it.each(["access.json", "certificates.json"])("does not start with an empty or damaged %s", async (file) => {
    const { broker, dir } = await openListener({ tls: "on" });
    await broker.stop();
    for (const damaged of ["", "{", "null", "{}", '{"token":""}']) {
      writeFileSync(join(dir, file), damaged);
      await expect(startBroker({ dir, port: 0, tls: "on" })).rejects.toMatchObject({
        code: "LABORO_DATA_CORRUPT",
        message: expect.stringContaining(file),
      });
    }
    rmSync(join(dir, file));
    await (await startBroker({ dir, port: 0, tls: "on" })).stop();
  });

  it("says how it is without a token", async () => {
    const { broker } = await openListener();
    expect((await ask(`${broker.url}/healthz`)).text).toBe("ok\n");
    expect((await ask(`${broker.url}/readyz`)).text).toBe("ok\n");
  });

  it("loads neither the HTTP API nor certificates before they are asked for", () => {
    const source = `
      import { createRequire } from "node:module";
      const { startBroker } = await import(new URL("broker.js", process.argv[2]).href);
      const { connect } = await import(process.argv[2]);
      const broker = await startBroker({ dir: process.argv[3], port: 0 });
      const client = await connect({ broker: broker.url, token: broker.token });
      await client.ask("status", {});
      client.close();
      await broker.stop();
      console.log(JSON.stringify(Object.keys(createRequire(process.argv[2]).cache).filter((path) => /fastify|selfsigned|pkijs/.test(path))));
    `;
    const built = new URL("../../dist/entries/client.js", import.meta.url);
    if (!existsSync(built)) return;
    const dir = mkdtempSync(join(tmpdir(), "laboro-start-"));
    const program = join(dir, "program.mjs");
    writeFileSync(program, source);
    const { stdout, stderr } = spawnSync(process.execPath, [program, built.href, join(dir, "data")], {
      encoding: "utf8",
    });
    rmSync(dir, { recursive: true });
    expect(stdout.trim(), stderr).toBe("[]");
  });
});
