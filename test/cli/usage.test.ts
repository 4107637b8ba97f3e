import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { laboro } from "./support/cli.js";

describe("a mistake in the command", () => {
  it("in the verb is exit code 2 and comes with a suggestion", async () => {
    expect(await laboro(["statsu"], { process: true })).toMatchInlineSnapshot(`
      {
        "code": 2,
        "stderr": "laboro: unknown command 'statsu' (LABORO_BAD_INPUT)
        (Did you mean status?)
      ",
        "stdout": "",
      }
    `);
  });

  it("in the verb names the verb for a word of another program, or the list of verbs", async () => {
    const meant = async (...words: string[]): Promise<string> =>
      (await laboro(words)).stderr.split("\n").slice(1, -1).join("\n");
    expect(await meant("squeue")).toBe("  (Did you mean status?)");
    expect(await meant("list")).toBe("  (Did you mean status?)");
    expect(await meant("job", "list")).toBe("  (Did you mean status?)");
    expect(await meant("server", "start")).toBe("  (Did you mean serve?)");
    expect(await meant("version")).toBe("  (Did you mean --version?)");
    expect(await meant("cancle", "1")).toBe("  (Did you mean cancel?)");
    expect(await meant("xyzzy")).toBe("  (laboro --help lists the verbs)");
    expect(await meant("ssh")).toBe("  (laboro ssh --help has examples)");
  });

  it("in an option is exit code 2 and comes with a suggestion", async () => {
    expect(await laboro(["status", "--jsno"])).toMatchInlineSnapshot(`
      {
        "code": 2,
        "stderr": "laboro: unknown option '--jsno' (LABORO_BAD_INPUT)
        (Did you mean --json?)
      ",
        "stdout": "",
      }
    `);
  });

  it("in a state, a duration or a selector says what was expected", async () => {
    const said = [
      await laboro(["status", "--state", "runing"]),
      await laboro(["wait", "last", "--timeout", "soon"]),
      await laboro(["cancel", "4-1"]),
      await laboro(["cancel"]),
      await laboro(["logs", "1", "--stream", "both"]),
      await laboro(["rerun", "1", "--failed", "--all"]),
      await laboro(["clean", "3", "--keep", "1"]),
    ];
    expect(said.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2, 2, 2]);
    expect(said.map(({ stdout }) => stdout).join("")).toBe("");
    expect(said.map(({ stderr }) => stderr).join("")).toMatchInlineSnapshot(`
      "laboro: option '--state <states>' argument 'runing' is invalid. no state "runing"; did you mean running? (LABORO_BAD_INPUT)
      laboro: option '--timeout <duration>' argument 'soon' is invalid. expected a duration such as 90 or 90s (seconds), 5m, 1h30m or 01:30:00, got soon (LABORO_BAD_INPUT)
      laboro: selector "4-1": expected the smaller number first, 1-4 (LABORO_BAD_INPUT)
      laboro: missing required argument 'selector': a job, such as last or 7; laboro status lists them (LABORO_BAD_INPUT)
        (laboro cancel --help has examples)
      laboro: option '--stream <stream>' argument 'both' is invalid. Allowed choices are stdout, stderr. (LABORO_BAD_INPUT)
      laboro: option '--failed' cannot be used with option '--all' (LABORO_BAD_INPUT)
      laboro: clean takes a selector or options, not both (LABORO_BAD_INPUT)
      "
    `);
  });
});

describe("help", () => {
  it("lists every verb in groups, and each verb has examples", async () => {
    const { code, stdout } = await laboro(["--help"]);
    expect(code).toBe(0);
    const verbs = [...stdout.matchAll(/^ {2}([a-z]+) {2,}/gm)]
      .map(([, verb = ""]) => verb)
      .filter((verb) => verb !== "help");
    expect(verbs.length).toBeGreaterThan(15);
    for (const verb of verbs) {
      const help = await laboro([verb, "--help"]);
      expect(help.code).toBe(0);
      expect(help.stdout).toMatch(new RegExp(`Examples?:\\n.*laboro .*${verb}`));
    }
  });

  it.each(["run", "submit", "schedule"])("lists the options of %s by what they are about", async (verb) => {
    const { stdout } = await laboro([verb, "--help"]);
    for (const group of ["Entries", "Job", "Command", "Slots and workers", "Failures", "Output"])
      expect(stdout).toMatch(new RegExp(`^${group}:\n  -`, "m"));
    // The last group has what is about this call of the verb.
    const rest = stdout.slice(stdout.indexOf("\nOptions:\n"), stdout.indexOf("\nExamples:\n"));
    const own = verb === "run" ? ["--dry-run", "--fresh"] : [];
    const named = [...rest.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map(([, name]) => name);
    expect(named).toEqual([...own, "--broker", "--data", "--local", "--verbose", "--help"]);
  });

  it("about a verb is the same by help VERB", async () => {
    expect(await laboro(["help", "wait"])).toEqual(await laboro(["wait", "--help"]));
  });
});

describe("without a broker", () => {
  const nowhere = { LABORO_DATA: "/nonexistent/laboro" };

  it("every verb that needs one exits 3 and says what to do", async () => {
    const verbs = [
      "status",
      "workers",
      "services",
      "wait last",
      "logs 1",
      "cancel all --yes",
      "explain 1.1",
      "open",
      "request x",
    ];
    for (const verb of verbs) {
      const { code, stdout, stderr } = await laboro(verb.split(" "), { env: nowhere });
      expect([verb, code, stdout]).toEqual([verb, 3, ""]);
      expect(stderr).toMatch(/^laboro: .*laboro serve.*\(LABORO_BROKER_UNREACHABLE\)\n$/);
    }
  });

  it("a token in an argument is refused, and not repeated", async () => {
    const url = "http://0123456789abcdef@127.0.0.1:1";
    const verbs = ["status", "submit true", "run true", "worker", "drain w"].map((line) => line.split(" "));
    const calls = verbs.map(([verb = "", ...words]) => [verb, "--broker", url, ...words]);
    calls.push(["worker", "--join", url], ["--broker", url]);
    for (const words of calls) {
      const { code, stdout, stderr } = await laboro(words, { env: nowhere });
      expect([words, code, stdout]).toEqual([words, 2, ""]);
      expect(stderr).toMatch(/every user of this machine can read arguments\. LABORO_BROKER takes/);
      expect(stderr).not.toContain("0123456789abcdef");
    }
  });

  it("a port on which nothing listens is known at once", async () => {
    const began = Date.now();
    const said = await laboro(["status"], { env: { LABORO_BROKER: "http://0123456789abcdef@127.0.0.1:1" } });
    expect(Date.now() - began).toBeLessThan(3_000);
    expect(said).toMatchInlineSnapshot(`
      {
        "code": 3,
        "stderr": "laboro: no broker answers at http://127.0.0.1:1: nothing listens there (LABORO_BROKER_UNREACHABLE)
        start one with laboro serve, or name it with --broker or --data; laboro doctor looks closer
      ",
        "stdout": "",
      }
    `);
  });

  it("where it came from is shown only when asked for", async () => {
    const [plain, option, variable] = [
      await laboro(["status"], { env: nowhere }),
      await laboro(["status", "--verbose"], { env: nowhere }),
      await laboro(["status"], { env: { ...nowhere, LABORO_VERBOSE: "1" } }),
    ];
    expect(plain.stderr).not.toContain("    at ");
    for (const { stderr } of [option, variable]) expect(stderr).toContain("    at ");
  });

  it("options that every verb has may stand before it", async () => {
    const { stderr } = await laboro(["--data", "/nonexistent/other", "workers"]);
    expect(stderr).toContain("/nonexistent/other/access.json");
  });

  it("a join URL in a file is taken by @FILE", async () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
    onTestFinished(() => rmSync(dir, { recursive: true }));
    writeFileSync(join(dir, "join.url"), "http://0123456789abcdef@127.0.0.1:1\n", { mode: 0o600 });
    const { code, stderr } = await laboro(["status", "--broker", `@${join(dir, "join.url")}`]);
    expect([code, stderr]).toEqual([3, expect.stringContaining("127.0.0.1:1")]);
    expect(readdirSync(dir)).toEqual(["join.url"]);
  });
});
