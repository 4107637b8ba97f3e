import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCliShop, sh } from "./support/cli.js";

describe("laboro rerun", () => {
  it("runs again what failed, under the same number", async () => {
    const shop = await openCliShop();
    shop.worker();
    const recipe = { ...sh('test -e mended || test $LABORO_TASK = 1 && echo ran >> "$LABORO_TASK"'), dir: shop.dir };
    const job = await shop.client.submit({ recipe, count: 3 });
    expect(await job.wait()).toBe("failed");
    writeFileSync(join(shop.dir, "mended"), "");
    expect(await shop.laboro(["rerun", "last", "--failed"], { process: true })).toEqual({
      code: 0,
      stdout: "2 tasks of job 1 run again\n",
      stderr: "",
    });
    expect((await shop.laboro(["wait", "last"])).code).toBe(0);
    expect(existsSync(join(shop.dir, "2"))).toBe(true);
    expect((await shop.laboro(["rerun", "last"])).stdout).toBe("job 1 has no task that has failed or was cancelled\n");
    expect((await shop.laboro(["rerun", "1.1", "--all"])).stdout).toBe("1 task of job 1 runs again\n");
    expect(await job.wait()).toBe("succeeded");
  });
});
