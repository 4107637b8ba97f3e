import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro open", () => {
  it("prints a link that is another one each time", async () => {
    const setup = await openCliBroker();
    const [first, second] = [await setup.laboro(["open"], { process: true }), await setup.laboro(["open"])];
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(new RegExp(`^${setup.broker.url}/#login=[\\w-]+\\n$`));
    expect(second.stdout).not.toBe(first.stdout);
  });

  it("opens it in a browser where there is a terminal", async () => {
    const setup = await openCliBroker();
    const browser = join(setup.dir, "browser");
    writeFileSync(browser, '#!/bin/sh\necho "$1" > "$0.opened"\n', { mode: 0o755 });
    const { stdout } = await setup.laboro(["open"], { columns: 80, env: { BROWSER: browser } });
    await until("the browser was started", () => existsSync(`${browser}.opened`));
    await until("it has the link", () => readFileSync(`${browser}.opened`, "utf8") === stdout);
    const piped = await setup.laboro(["open", "--print"], { columns: 80, env: { BROWSER: browser } });
    expect(piped.stdout).toContain("/#login=");
    expect(readFileSync(`${browser}.opened`, "utf8")).toBe(stdout);
  });
});
