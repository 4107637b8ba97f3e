/** examples/thumbnails, as in a project that has installed the package. */
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { openShop } from "../client/shop.js";
import { atEnd } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { LABORO, Launched, REPOSITORY } from "../support/launched.js";
import { until } from "../support/wait.js";

function install(dir: string): string {
  const project = join(dir, "thumbnails");
  cpSync(join(REPOSITORY, "examples", "thumbnails"), project, { recursive: true });
  mkdirSync(join(project, "node_modules"));
  symlinkSync(REPOSITORY, join(project, "node_modules", "laboro"));
  symlinkSync(join(REPOSITORY, "node_modules", "fastify"), join(project, "node_modules", "fastify"));
  return project;
}

describe("examples/thumbnails", () => {
  it("passes its own tests", async () => {
    const { dir } = await openShop();
    const env = { PATH: process.env.PATH, HOME: dir };
    const { stdout } = await promisify(execFile)(process.execPath, ["--test"], { cwd: install(dir), env });
    expect(stdout).toMatch(/pass 3\n[\s\S]*fail 0\n/);
  });

  it("works as processes of its own, and loses nothing when they are stopped", async () => {
    const { broker, dir } = await openShop();
    const project = install(dir);
    const port = await freePort();
    const env = { PATH: process.env.PATH, HOME: dir, LABORO_BROKER: broker.joinUrl("admin"), PORT: String(port) };
    const launch = (name: string, ...args: string[]): Launched => {
      const launched = new Launched(name, args, { env });
      atEnd(() => launched.end("SIGKILL"));
      return launched;
    };
    const server = launch("server", join(project, "server.js"));
    const url = `http://127.0.0.1:${port}/pictures`;
    const pixels = Buffer.alloc(10_000, 7);
    const add = () =>
      fetch(`${url}?width=100`, {
        ...{ method: "POST", body: pixels, headers: { "content-type": "application/octet-stream" } },
      });
    const { job } = await until("it answers", () =>
      add().then(
        (answer) => answer.json() as Promise<{ job: number }>,
        () => undefined,
      ),
    );
    await server.end("SIGTERM");
    const again = launch("server", join(project, "server.js"));
    const args = ["--dir", join(dir, "worker"), "--handlers", join(project, "handlers.js")];
    const worker = launch("worker", LABORO, "worker", ...args);
    const made = await until("it answers", () => fetch(`${url}/${job}`).catch(() => undefined));
    expect(Buffer.from(await made.arrayBuffer())).toEqual(Buffer.alloc(2_500, 7));
    for (const launched of [worker, again]) await launched.end("SIGTERM");
    expect([server.exitCode, again.exitCode, worker.exitCode]).toEqual([0, 0, 0]);
  });
});
