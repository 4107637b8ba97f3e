import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import type { CommandSpec } from "../../../src/worker/processes/index.js";
import {
  describeEachShell,
  inSubshell,
  only,
  outcomeOf,
  run,
  sh,
  slotsForEachTest,
  temporaryFolder,
} from "./support.js";

const open = slotsForEachTest();
const dir = temporaryFolder();

describeEachShell((shell) => {
  it("can have its shell ready before there is a command", async () => {
    const slot = only(open(shell));
    slot.prepare();
    const { pid } = slot;
    expect(pid).toBeGreaterThan(0);
    slot.prepare();
    expect(outcomeOf((await run(slot, sh("exit 3"))).end)).toEqual({ code: 3 });
    slot.prepare();
    expect(slot.pid).toBe(pid);
    await slot.close();
    slot.prepare();
    expect(slot.pid).toBeUndefined();
  });

  it("says that a command is missing, and tells this from a command that exits 127", async () => {
    const slot = only(open(shell));
    const { end } = await run(slot, { argv: ["no-such-command-here", "x"] });
    expect(outcomeOf(end)).toEqual({ error: 'cannot start "no-such-command-here": command not found' });
    expect(outcomeOf((await run(slot, { argv: ["/no/such/file"] })).end).error).toContain("/no/such/file");
    expect(outcomeOf((await run(slot, { argv: [""] })).end).error).toContain('cannot start ""');
    expect(outcomeOf((await run(slot, sh("exit 127"))).end)).toEqual({ code: 127 });
    expect(outcomeOf((await run(slot, sh("no-such-command-here"))).end)).toEqual({ code: 127 });
  });

  it("says that a file is not executable, and tells this from a command that exits 126", async () => {
    const slot = only(open(shell));
    const file = join(dir, "plain file");
    writeFileSync(file, "#!/bin/sh\nexit 0\n");
    chmodSync(file, 0o644);
    expect(outcomeOf((await run(slot, { argv: [file] })).end)).toEqual({
      error: `cannot start "${file}": it is not executable`,
    });
    expect(outcomeOf((await run(slot, { argv: [dir] })).end).error).toContain("cannot start");
    expect(outcomeOf((await run(slot, sh("exit 126"))).end)).toEqual({ code: 126 });
  });

  it("says that a script cannot start whose interpreter is missing", async () => {
    const slot = only(open(shell));
    const file = join(dir, "no interpreter");
    writeFileSync(file, "#!/no/such/program -x\n", { mode: 0o755 });
    for (const at of [{}, { dir }]) {
      const { end } = await run(slot, { argv: [file], ...at });
      expect(outcomeOf(end).error).toContain(`cannot start "${file}"`);
    }
    writeFileSync(file, "#!/bin/sh\nexit 127\n", { mode: 0o755 });
    expect(outcomeOf((await run(slot, { argv: [file] })).end)).toEqual({ code: 127 });
  });

  it("says that an argument list is longer than the kernel takes", async () => {
    const slot = only(open(shell));
    const long = "x".repeat(200_000);
    expect((await run(slot, { argv: ["true", long] })).end.error).toContain("too long");
    const many = Array.from({ length: 40 }, () => "y".repeat(100_000));
    expect((await run(slot, { argv: ["true", ...many] })).end.error).toContain("too long");
    expect(outcomeOf((await run(slot, sh("exit 0"))).end)).toEqual({ code: 0 });
  });

  it("passes an argument just below the kernel's limit unchanged", async () => {
    const slot = only(open(shell));
    const long = "x'y\n".repeat(32_000);
    const { stdout } = await run(slot, { argv: ["printf", "%s", long] });
    expect(stdout.toString() === long).toBe(true);
  });

  it("runs in the directory given, whatever its name", async () => {
    const slot = only(open(shell));
    for (const name of ["plain", "two words", "quote'd", "-dash", "new\nline", "$(touch x)", "ünï"]) {
      const path = join(dir, name);
      mkdirSync(path, { recursive: true });
      const { stdout, end } = await run(slot, { argv: ["pwd"], dir: path });
      expect([stdout.toString(), end.code]).toEqual([`${path}\n`, 0]);
    }
    const { stdout } = await run(slot, { argv: ["pwd"] });
    expect(stdout.toString()).toBe(`${process.cwd()}\n`);
  });

  it("runs in its directory, or in the agent's, after a command that ran in another", async () => {
    const slot = only(open(shell));
    const [a, b] = ["first dir", "-second\ndir"].map((name) => join(dir, name));
    for (const path of [a, b]) mkdirSync(path ?? "", { recursive: true });
    const pwd = async (spec: object): Promise<string> =>
      (await run(slot, { argv: ["/bin/sh", "-c", '/bin/pwd; echo "$PWD$OLDPWD"'], ...spec })).stdout.toString();
    for (const path of [a, a, b, a]) expect(await pwd({ dir: path })).toBe(`${path}\n${path}\n`);
    expect((await run(slot, { argv: ["/bin/pwd"] })).stdout.toString()).toBe(`${process.cwd()}\n`);
    expect((await run(slot, { argv: ["pwd"], dir: b ?? "" })).stdout.toString()).toBe(`${b}\n`);
    expect((await run(slot, { argv: ["pwd"] })).stdout.toString()).toBe(`${process.cwd()}\n`);
  });

  it("notices that a directory was removed or replaced between two commands", async () => {
    const slot = only(open(shell));
    const path = mkdtempSync(join(dir, "comes and goes"));
    const list = async (): Promise<[object, string]> => {
      const { end, stdout } = await run(slot, { argv: ["/bin/ls"], dir: path });
      return [outcomeOf(end), stdout.toString()];
    };
    expect(await list()).toEqual([{ code: 0 }, ""]);
    rmSync(path, { recursive: true });
    expect((await list())[0]).toEqual({ error: `cannot enter the directory "${path}": no such file or directory` });
    mkdirSync(path);
    writeFileSync(join(path, "new"), "");
    expect(await list()).toEqual([{ code: 0 }, "new\n"]);
  });

  it("passes environment values of every byte, and leaves umask, limits and variables of one command to no other", async () => {
    const slot = only(open(shell, 1, { PATH: process.env.PATH, KEPT: "base" }));
    const every = Buffer.from(Array.from({ length: 255 }, (_, i) => i + 1));
    const env = { EVERY: every, KEPT: "other", NEW: "1" };
    const first = variables((await run(slot, { argv: ["/usr/bin/env", "-0"], env })).stdout);
    expect([first.get("EVERY"), first.get("KEPT"), first.get("NEW")]).toEqual([every.toString("latin1"), "other", "1"]);
    await run(slot, { ...sh("umask 077; ulimit -n 10; export NEW=2; cd /"), env });
    const next = variables((await run(slot, { argv: ["/usr/bin/env", "-0"] })).stdout);
    expect([next.has("EVERY"), next.get("KEPT"), next.has("NEW")]).toEqual([false, "base", false]);
    const limits = sh("umask; ulimit -n; /bin/pwd");
    expect((await run(slot, limits)).stdout.toString()).toBe((await run(slot, inSubshell(limits))).stdout.toString());
  });

  it("follows .. as the kernel does, through the target of a symbolic link", async () => {
    const slot = only(open(shell));
    mkdirSync(join(dir, "deep/er"), { recursive: true });
    const link = join(dir, `link-${shell.length}-${shell[0].replaceAll("/", "_")}`);
    symlinkSync(join(dir, "deep/er"), link);
    const { stdout } = await run(slot, { argv: ["/bin/pwd", "-P"], dir: `${link}/..` });
    expect(stdout.toString()).toBe(`${join(dir, "deep")}\n`);
  });

  it("says that the directory cannot be entered", async () => {
    const slot = only(open(shell));
    const { end } = await run(slot, { argv: ["true"], dir: "/no/such/dir" });
    expect(outcomeOf(end)).toEqual({ error: 'cannot enter the directory "/no/such/dir": no such file or directory' });
    expect((await run(slot, { argv: ["true"], dir: "/etc/passwd" })).end.error).toContain("not a directory");
    expect((await run(slot, { argv: ["true"], dir: "" })).end.error).toContain("cannot enter");
    expect(outcomeOf((await run(slot, { argv: ["true"], dir: "/" })).end)).toEqual({ code: 0 });
  });

  it("runs the program where its name is a builtin, keyword or function of the shell", async () => {
    const slot = only(open(shell));
    expect((await run(slot, { argv: ["echo", "-n", "a"] })).stdout.toString()).toBe("a");
    expect((await run(slot, { argv: ["[", "a", "=", "b", "]"] })).end.code).toBe(1);
    expect((await run(slot, { argv: ["true"] })).end.code).toBe(0);
    for (const name of ["exec", "if", "!", "{", "eval", ":", "export", "set", "return"]) {
      expect((await run(slot, { argv: [name, "x"] })).end.error).toBe(`cannot start "${name}": command not found`);
    }
    const named = join(dir, "bin");
    mkdirSync(named, { recursive: true });
    for (const name of ["cd", "if", "!", "-x", "--", "a=b", "trap"]) {
      writeFileSync(join(named, name), '#!/bin/sh\necho "ran $*"\n', { mode: 0o755 });
      const { stdout } = await run(slot, { argv: [name, "-y"], env: { PATH: `${named}:${process.env.PATH}` } });
      expect([name, stdout.toString()]).toEqual([name, "ran -y\n"]);
    }
  });

  it("adds the environment given to the base, and leaves nothing of it to the next command", async () => {
    const slot = only(open(shell, 1, { PATH: process.env.PATH, BASE: "kept", LABORO_X: "base" }));
    const env = {
      LABORO_X: "a'b\n$(id)`\\",
      UID: "77",
      IFS: "127",
      OPTIND: "x",
      LC_ALL: "C",
      EMPTY: "",
      RANDOM: "4",
      BYTES: Buffer.from([0xff, 0xc3, 0x28]),
    };
    const first = await run(slot, { argv: ["env", "-0"], env });
    const seen = variables(first.stdout);
    for (const [name, value] of Object.entries(env)) {
      expect([name, seen.get(name)]).toEqual([name, Buffer.from(value).toString("latin1")]);
    }
    expect(seen.get("BASE")).toBe("kept");
    const next = variables((await run(slot, { argv: ["env", "-0"] })).stdout);
    // What bash adds to any command by itself.
    for (const name of ["_", "SHLVL", "PWD", "OLDPWD"]) next.delete(name);
    expect(Object.fromEntries(next)).toEqual({ PATH: process.env.PATH, BASE: "kept", LABORO_X: "base" });
  });

  it("is not misled by a base environment that means something to a shell", async () => {
    const env = {
      PATH: process.env.PATH,
      IFS: "0123456789",
      CDPATH: "/usr",
      ENV: "/no/such",
      PS4: "$(id)",
      mark: "x",
      OLDPWD: "/",
    };
    const slot = only(open(shell, 1, env));
    mkdirSync(join(dir, "lib"), { recursive: true });
    expect(outcomeOf((await run(slot, sh("exit 105"))).end)).toEqual({ code: 105 });
    expect(outcomeOf((await run(slot, sh("kill -9 $$"))).end)).toEqual({ signal: "SIGKILL" });
    expect((await run(slot, { argv: ["no-such-command-here"] })).end.error).toContain("not found");
    expect((await run(slot, { argv: ["pwd"], dir: "no-such-folder/lib" })).end.error).toContain("cannot enter");
  });

  it("tells a missing command from exit 127 also with a PATH of its own", async () => {
    const slot = only(open(shell));
    expect((await run(slot, { argv: ["ls"], env: { PATH: "/nowhere" } })).end.error).toBe(
      'cannot start "ls": command not found',
    );
  });

  it("says how to run the file of a missing command's name in its directory", async () => {
    const slot = only(open(shell));
    const name = "jöb.sh";
    const file = join(dir, name);
    writeFileSync(file, "#!/bin/sh\n");
    chmodSync(file, 0o644);
    const missing = `cannot start "${name}": command not found`;
    const spec = { argv: [Buffer.from(name), "x"], dir };
    expect((await run(slot, spec)).end.error).toBe(
      `${missing}; its directory has a file of this name: run it with --script`,
    );
    chmodSync(file, 0o755);
    expect((await run(slot, spec)).end.error).toBe(
      `${missing}; its directory has a file of this name: run it as "./${name}"`,
    );
    expect((await run(slot, { ...spec, dir: "/" })).end.error).toBe(missing);
  });

  it("gives an empty standard input, or the file named", async () => {
    const slot = only(open(shell));
    expect((await run(slot, { argv: ["cat"] })).stdout.length).toBe(0);
    const file = join(dir, "it's input");
    writeFileSync(file, Buffer.from([0, 1, 2, 255, 10]));
    expect([...(await run(slot, { argv: ["cat"], stdinFile: file })).stdout]).toEqual([0, 1, 2, 255, 10]);
    const { end } = await run(slot, { argv: ["cat"], stdinFile: join(dir, "absent") });
    expect(outcomeOf(end)).toEqual({
      error: `cannot read the input file "${join(dir, "absent")}": no such file or directory`,
    });
  });

  it("gives commands no descriptor beyond those that any child of the agent gets", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, { argv: ["ls", "/proc/self/fd"] });
    expect(stdout.toString()).toBe(execFileSync("ls", ["/proc/self/fd"], { encoding: "utf8" }));
  });

  it("refuses what cannot be passed on, and is free afterwards", () => {
    const slot = only(open(shell));
    const bad: CommandSpec[] = [
      { argv: [] },
      { argv: ["true", "a\0b"] },
      { argv: [Buffer.from("a\0")] },
      { argv: ["true"], dir: "a\0" },
      { argv: ["true"], stdinFile: "a\0" },
      { argv: ["true"], env: { A: "\0" } },
      { argv: ["true"], env: { "A-B": "1" } },
      { argv: ["true"], env: { "A;touch x": "1" } },
      { argv: ["true"], env: { "": "1" } },
    ];
    for (const spec of bad) {
      let thrown: unknown;
      try {
        slot.run(spec, { output: () => {}, ended: () => {} });
      } catch (cause) {
        thrown = cause;
      }
      expect(thrown).toBeInstanceOf(LaboroError);
      expect(thrown).toMatchObject({ code: "LABORO_BAD_INPUT" });
    }
    expect(slot.busy).toBe(false);
  });

  it("says why the slot's shell itself does not start", async () => {
    const slot = only(open(["/no/such/shell"]));
    expect((await run(slot, { argv: ["true"] })).end.error).toContain("shell did not start");
    const failing = only(open(["/bin/sh", "-c", "echo no room; exit 1"]));
    expect((await run(failing, { argv: ["true"] })).end.error).toContain("no room");
  });
});

function variables(zeroSeparated: Buffer): Map<string, string> {
  const entries = zeroSeparated
    .toString("latin1")
    .split("\0")
    .filter((entry) => entry !== "");
  return new Map(entries.map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)]));
}

it("says with the first command that there is no shell, not before", async () => {
  const slot = only(open(["/no/such/shell"]));
  slot.prepare();
  expect(outcomeOf((await run(slot, sh("exit 0"))).end).error).toContain("shell did not start");
});
