import { execFile } from "node:child_process";
import { describe, expect, it } from "vitest";
import { LABORO } from "../support/launched.js";
import { TRUE } from "../support/recipes.js";
import { type CliShop, laboro, openCliShop } from "./support/cli.js";

/** What bash offers for a line that is typed up to here. */
function completed(shop: CliShop, line: string): Promise<string[]> {
  const words = line.split(" ");
  const script = `
laboro() { '${process.execPath}' '${LABORO}' "$@"; }
source <(laboro completion bash)
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}
_laboro
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const env = { PATH: process.env.PATH, LABORO_DATA: shop.data };
  return new Promise((resolve, reject) => {
    execFile("bash", ["-c", script], { env }, (error, stdout) => {
      if (error) reject(error);
      else resolve(stdout.split("\n").filter((word) => word !== ""));
    });
  });
}

describe("laboro completion", () => {
  it("for bash completes verbs, options, values, jobs, workers and services", async () => {
    const shop = await openCliShop();
    const worker = shop.worker({ name: "node17" });
    worker.handle("resize", async (body) => body);
    await (await shop.client.submit({ name: "one", recipe: TRUE })).wait();
    await shop.client.submit({ name: "$(touch oops)", recipe: TRUE, held: true });
    expect(await completed(shop, "laboro st")).toEqual(["status", "stop"]);
    expect(await completed(shop, "laboro logs --st")).toEqual(["--stream"]);
    expect(await completed(shop, "laboro logs --stream ")).toEqual(["stdout", "stderr"]);
    expect(await completed(shop, "laboro cancel ")).toEqual(["last", "all", "2", "1"]);
    expect(await completed(shop, "laboro drain no")).toEqual(["node17"]);
    expect(await completed(shop, "laboro request ")).toEqual(["resize"]);
    expect(await completed(shop, "laboro help expl")).toEqual(["explain"]);
  });

  it("offers nothing, quietly and soon, where no broker answers", async () => {
    const env = { LABORO_BROKER: "http://0123456789abcdef@127.0.0.1:1" };
    expect(await laboro(["completion", "--list", "jobs"], { env })).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it("for zsh and fish names every verb and option", async () => {
    const [zsh, fish] = [await laboro(["completion", "zsh"]), await laboro(["completion", "fish"])];
    for (const { code, stdout } of [zsh, fish]) {
      expect(code).toBe(0);
      for (const word of ["status", "rerun", "older-than", "stream", "completion --list"])
        expect(stdout).toContain(word);
    }
    expect(zsh.stdout).toMatch(/^#compdef laboro\n/);
    expect(fish.stdout).toContain("complete -c laboro -n '__fish_seen_subcommand_from logs' -l follow -s f");
  });

  it("for another shell says which there are", async () => {
    const { code, stderr } = await laboro(["completion", "tcsh"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("Allowed choices are bash, zsh, fish")]);
    expect((await laboro(["completion"])).stderr).toContain("bash, zsh or fish");
  });
});
