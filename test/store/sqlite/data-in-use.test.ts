import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { expect, it } from "vitest";
import { sqliteHarness } from "./harness.js";

const CHILD = new URL("./holding-child.mjs", import.meta.url).pathname;

async function holder(dir: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [CHILD, dir], { stdio: ["pipe", "pipe", "inherit"] });
  await once(child.stdout, "data");
  return child;
}

it("refuses a directory that another process holds, and says which; takes it once that is dead", async () => {
  const { dir, handle, dispose } = await sqliteHarness();
  const child = await holder(dir);
  await expect(handle().open(1)).rejects.toMatchObject({
    code: "LABORO_DATA_IN_USE",
    message: expect.stringContaining(String(child.pid)),
  });
  child.kill("SIGKILL");
  await once(child, "exit");
  const store = handle();
  expect((await store.open(1)).epoch).toBe(2);
  await store.close();
  await dispose();
});

it("refuses a second store in the same process, and takes it after the first is closed", async () => {
  const { dir, handle, dispose } = await sqliteHarness();
  const first = handle();
  await first.open(1);
  await expect(handle().open(1)).rejects.toMatchObject({ code: "LABORO_DATA_IN_USE" });
  await first.close();
  const second = handle();
  await second.open(1);
  await second.close();
  expect(fs.readdirSync(dir).filter((name) => name.startsWith("lock"))).toEqual([]);
  await dispose();
});
