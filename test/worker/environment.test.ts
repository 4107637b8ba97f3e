import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import { JobFiles } from "../../src/worker/job-files.js";
import { openTestBroker } from "../support/test-broker.js";

const before = process.env.LABORO_BROKER;

afterEach(() => {
  if (before === undefined) delete process.env.LABORO_BROKER;
  else process.env.LABORO_BROKER = before;
});

it("neither a task nor a service sees the token that the worker was given", async () => {
  process.env.LABORO_BROKER = "http://secret@127.0.0.1:1";
  const { client, worker } = await openTestBroker();
  const line = "printenv LABORO_BROKER || echo none";
  worker({ programs: { once: { command: line }, kept: { command: `read x; ${line}`, mode: "lines" } } });
  const job = await client.submit({ recipe: { kind: "command", shell: true, argv: [line] } });
  await job.wait();
  expect(await job.text(0)).toBe("none\n");
  expect(Buffer.from(await client.request("once")).toString()).toBe("none\n");
  expect(Buffer.from(await client.request("kept")).toString()).toBe("none");
});

it("the number of an array is the entry of its task", () => {
  const dir = mkdtempSync(join(tmpdir(), "laboro-files-"));
  const array = [
    { first: 5, last: 9, step: 2 },
    { first: 100, last: 100, step: 1 },
  ];
  const recipe = { kind: "command", argv: ["echo", "n={}"], placeholders: true, array } as const;
  const files = new JobFiles(dir);
  const made = [0, 2, 3].map((index) =>
    files.commandOf({ recipe }, { job: JobId(1), index, attempt: 1 }, { slot: 0, env: {} }),
  );
  expect(made.map(({ argv }) => String(argv[1]))).toEqual(["n=5", "n=9", "n=100"]);
  expect(made.map(({ env }) => env?.LABORO_ENTRY)).toEqual(["5", "9", "100"]);
  files.remove();
});
