/** examples/thumbnails, as in a project that has installed the package. */
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { LABORO, Launched, REPOSITORY } from "../support/launched.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const run = promisify(execFile);

/** Installs it, checks its types and compiles it. */
async function build(dir: string): Promise<string> {
  const project = join(dir, "thumbnails");
  const source = join(REPOSITORY, "examples", "thumbnails");
  for (const name of ["package.json", "tsconfig.json", "src"])
    cpSync(join(source, name), join(project, name), { recursive: true });
  mkdirSync(join(project, "node_modules", "@types"), { recursive: true });
  symlinkSync(REPOSITORY, join(project, "node_modules", "laboro"));
  for (const name of ["fastify", "@types/node"])
    symlinkSync(join(REPOSITORY, "node_modules", name), join(project, "node_modules", name));
  await run(join(REPOSITORY, "node_modules", ".bin", "tsc"), [], { cwd: project }).catch(({ stdout }) => {
    throw new Error(`its types are wrong:\n${stdout}`);
  });
  return project;
}

describe("examples/thumbnails", () => {
  it("passes its own tests", async () => {
    const { dir } = await openTestBroker();
    const env = { PATH: process.env.PATH, HOME: dir };
    const tests = ["--test", "dist/app.test.js"];
    const { stdout } = await run(process.execPath, tests, { cwd: await build(dir), env });
    expect(stdout).toMatch(/pass 3\n[\s\S]*fail 0\n/);
  });

  it("works as processes of its own, and loses nothing when they are stopped", async () => {
    const { broker, dir } = await openTestBroker();
    const project = await build(dir);
    const port = await freePort();
    const env = { PATH: process.env.PATH, HOME: dir, PORT: String(port) };
    const launch = (name: "server" | "worker", ...args: string[]): Launched => {
      const LABORO_BROKER = broker.joinUrl(name === "server" ? "client" : "worker");
      const launched = new Launched(name, args, { env: { ...env, LABORO_BROKER } });
      atEnd(() => launched.end("SIGKILL"));
      return launched;
    };
    const server = launch("server", join(project, "dist", "server.js"));
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
    const again = launch("server", join(project, "dist", "server.js"));
    const args = ["--dir", join(dir, "worker"), "--handlers", join(project, "dist", "handlers.js")];
    const worker = launch("worker", LABORO, "worker", ...args);
    const made = await until("it answers", () => fetch(`${url}/${job}`).catch(() => undefined));
    expect(Buffer.from(await made.arrayBuffer())).toEqual(Buffer.alloc(2_500, 7));
    for (const launched of [worker, again]) await launched.end("SIGTERM");
    expect([server.exitCode, again.exitCode, worker.exitCode]).toEqual([0, 0, 0]);
  });
});
