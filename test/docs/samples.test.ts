import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { LABORO, Launched } from "../support/launched.js";
import { openTestBroker } from "../support/test-broker.js";
import { projectOf, samplesOf, typeErrorsOf } from "./samples.js";

const GUIDES = ["sdk", "from-bullmq", "from-pg-boss", "from-graphile-worker"].map((name) => `docs/guide/${name}.md`);

describe.each(GUIDES)("the samples of %s", (page) => {
  it("have the types that the package has", () => {
    expect(samplesOf(page).length).toBeGreaterThan(2);
    expect(typeErrorsOf(page)).toEqual([]);
  });
});

describe("the first steps of docs/guide/sdk.md", () => {
  it("do what the page says", async () => {
    const { broker, dir } = await openTestBroker();
    const project = join(dir, "project");
    projectOf("docs/guide/sdk.md", project);
    const file = join(dir, "client.url");
    writeFileSync(file, broker.joinUrl("client"));
    const env = { PATH: process.env.PATH, HOME: dir, LABORO_BROKER: `@${file}` };
    const args = [LABORO, "worker", "--dir", join(dir, "worker"), "--handlers", join(project, "handlers.js")];
    const worker = new Launched("worker", args, { env: { ...env, LABORO_BROKER: broker.joinUrl("worker") } });
    atEnd(() => worker.end("SIGKILL"));
    await worker.says("handles count");
    const run = async (file: string): Promise<string> =>
      (await promisify(execFile)(process.execPath, [file], { cwd: project, env })).stdout;
    expect(await run("app.js")).toBe("4\n");
    expect(await run("app.test.js")).toBe("{ words: 2 }\n");
  });
});
