/** A program that has laboro inside its own bundle, in a folder without a package. */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "vite";
import { expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { REPOSITORY } from "../support/launched.js";
import { openTestBroker } from "../support/test-broker.js";

async function bundled(code: string): Promise<string> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-bundled-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const entry = (name: string): string => JSON.stringify(join(REPOSITORY, "dist", "entries", `${name}.js`));
  writeFileSync(
    join(dir, "app.mjs"),
    code.replaceAll(/"laboro\/(\w+)"/g, (_, name) => entry(name)),
  );
  await build({
    ...{ root: dir, configFile: false, logLevel: "silent", ssr: { noExternal: true } },
    build: { ssr: join(dir, "app.mjs"), outDir: join(dir, "out"), target: "node20" },
  });
  return join(dir, "out", "app.mjs");
}

it("is a client that works", async () => {
  const { broker } = await openTestBroker();
  const file = await bundled(`import { connect } from "laboro/client";
const client = await connect(process.env.LABORO_BROKER);
console.log((await client.ask("status", {})).workers.connected);
client.close();`);
  const env = { PATH: process.env.PATH, LABORO_BROKER: broker.joinUrl("client") };
  expect((await promisify(execFile)(process.execPath, [file], { env })).stdout).toBe("0\n");
});

it("is a worker that says what it lacks for threads", async () => {
  const { broker } = await openTestBroker();
  const file = await bundled(`import { startWorker } from "laboro/worker";
const worker = startWorker({ broker: process.env.LABORO_BROKER });
await worker.handle(new URL("./handlers.js", import.meta.url)).catch((error) => console.log(error.message));
await worker.stop({ graceMs: 0 });`);
  const env = { PATH: process.env.PATH, LABORO_BROKER: broker.joinUrl("worker") };
  const { stdout } = await promisify(execFile)(process.execPath, [file], { env, timeout: 30_000 });
  expect(stdout).toMatch(/is a bundle: leave laboro out of it/);
});
