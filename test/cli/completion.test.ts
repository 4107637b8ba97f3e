import { execFile, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LABORO } from "../support/launched.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { type CliBroker, laboro, openCliBroker } from "./support/cli.js";

const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

/** Prints what the shell offers for the line in $1, one candidate a line. */
const ASK: Readonly<Record<Shell, string>> = {
  bash: `
source script
[[ $(complete -p laboro) == *_laboro* ]] || exit 1
IFS=' ' read -ra COMP_WORDS <<< "$1"; [[ $1 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
_laboro
printf '%s\\n' "\${COMPREPLY[@]}"`,
  // An interactive shell on a terminal, whose own compadd also prints what fits.
  zsh: `
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "stty -echo; PS1= PS2=; autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; source ./script"
zpty -w inner 'compadd() { local -a fit; builtin compadd -O fit "$@"; print -rl -- "<"\${^fit}">"; builtin compadd "$@" }'
zpty -w inner 'finished() { print -r -- "<<DONE>>" }; comppostfuncs=(finished); print -r -- "<<""READY>>"'
zpty -r inner out '*<<READY>>*'
zpty -n -w inner "$1"$'\\t'
zpty -r inner out '*<<DONE>>*'
for word in \${(f)out}; do [[ $word =~ '^(.*[^<])?<([^<>]+)>' ]] && print -r -- $match[2]; done
true`,
  fish: `source script; complete -C $argv[1] | cut -f1`,
};
const OPTIONS: Readonly<Record<Shell, readonly string[]>> = { bash: [], zsh: ["-f"], fish: ["--no-config"] };

/** Without doubles: zsh offers some candidates in two ways. In the order of the alphabet. */
function completed(shell: Shell, setup: CliBroker, line: string): Promise<string[]> {
  const env = { PATH: `${setup.dir}:${process.env.PATH}`, HOME: setup.dir, LABORO_DATA: setup.data, LANG: "C.UTF-8" };
  const name = shell === "fish" ? [] : [shell];
  return new Promise((resolve, reject) => {
    const args = [...OPTIONS[shell], "-c", ASK[shell], ...name, line];
    execFile(shell, args, { env, cwd: setup.dir, timeout: 30_000 }, (error, stdout) => {
      if (error) reject(error);
      else resolve([...new Set(stdout.split("\n").filter((word) => word !== ""))].sort());
    });
  });
}

const isInstalled = (shell: Shell): boolean => spawnSync(shell, ["-c", "true"]).status === 0;

describe("laboro completion", () => {
  for (const shell of SHELLS) {
    const installed = isInstalled(shell);
    if (!installed) console.log(`${shell} is not installed here: its completion is not tested`);
    it.skipIf(!installed)(
      `in ${shell}${installed ? "" : " (not installed)"} offers verbs, options, values, jobs, workers and services`,
      async () => {
        const setup = await openCliBroker();
        const worker = setup.worker({ name: "node17" });
        worker.handle("resize", async (body) => body);
        await (await setup.client.submit({ name: "one", recipe: TRUE })).wait();
        await setup.client.submit({ name: "$(touch oops)", recipe: TRUE, held: true });
        const expected: Readonly<Record<string, readonly string[]>> = {
          "laboro st": ["status", "stop"],
          "laboro logs --st": ["--stream"],
          "laboro logs --stream ": ["stderr", "stdout"],
          "laboro cancel ": ["1", "2", "all", "last"],
          "laboro drain no": ["node17"],
          "laboro request ": ["resize"],
          "laboro help expl": ["explain"],
          "laboro scale0 ": ["request", "worker"],
          "laboro scale0 worker --config-c": ["--config-cache"],
          // The name of another verb as an argument does not make its options available.
          "laboro run logs --str": [],
        };
        writeFileSync(join(setup.dir, "script"), (await laboro(["completion", shell])).stdout);
        const program = `#!/bin/sh\nexec '${process.execPath}' '${LABORO}' "$@"\n`;
        writeFileSync(join(setup.dir, "laboro"), program, { mode: 0o755 });
        for (const [line, words] of Object.entries(expected)) {
          let found: readonly string[] = [];
          // Half a second after a question to the broker the verb offers nothing: on a busy machine it is asked again.
          const offered = async (): Promise<boolean> => {
            found = await completed(shell, setup, line);
            return found.join() === words.join();
          };
          await until(() => `${line} offers ${words.join()}, not ${found.join()}`, offered);
        }
      },
    );
  }

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
    expect(fish.stdout).toContain("complete -c laboro -n '__laboro_verb logs' -l follow -s f");
  });

  it("for another shell says which there are", async () => {
    const { code, stderr } = await laboro(["completion", "tcsh"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("expected one of bash, zsh, fish, got tcsh")]);
    expect((await laboro(["completion"])).stderr).toContain("bash, zsh or fish");
  });
});
