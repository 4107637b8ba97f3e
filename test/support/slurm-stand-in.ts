/** Commands named as Slurm's in a folder of their own at the front of PATH. They keep a queue in a file, and replay recorded failures. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { atEnd } from "./at-end.js";

/** What one of the commands wrote, and its exit code. `sleep`: it answers after so many seconds. */
export interface Recorded {
  readonly stderr: string;
  readonly code: number;
  readonly sleep?: number;
}

const HEAD = `#!/bin/sh
cd "$(dirname "$0")" || exit 99
me=$(basename "$0")
echo "$me $*" >> calls
if [ -f "$me.fails" ]; then . "./$me.fails"; fi
`;

const COMMANDS = {
  sbatch: `for script; do :; done
case " $* " in *" --test-only "*) echo "sbatch: Job 1 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 in partition debug" >&2; exit 0;; esac
id=$(( $(cat last 2>/dev/null || echo 0) + 1 )); echo $id > last
echo "$id|PENDING|Priority|$script" >> queue
echo $id
`,
  squeue: "cat queue 2>/dev/null; exit 0\n",
  scancel: 'for id; do sed -i "s/^$id|[A-Z]*|[^|]*|/$id|CANCELLED|None|/" queue; done\n',
};

export class SlurmStandIn {
  readonly dir = mkdtempSync(join(tmpdir(), "laboro-slurm-"));

  constructor() {
    mkdirSync(join(this.dir, "bin"));
    for (const [name, body] of Object.entries(COMMANDS)) {
      writeFileSync(this.#path(name), `${HEAD}${body}`);
      chmodSync(this.#path(name), 0o755);
    }
    const before = process.env.PATH;
    process.env.PATH = `${join(this.dir, "bin")}${delimiter}${before}`;
    atEnd(async () => {
      process.env.PATH = before;
      rmSync(this.dir, { recursive: true, force: true });
    });
  }

  #path(name: string): string {
    return join(this.dir, "bin", name);
  }

  /** From now on the command answers so; as usual without an answer. */
  answer(command: keyof typeof COMMANDS, recorded?: Recorded): void {
    const path = this.#path(`${command}.fails`);
    if (recorded === undefined) rmSync(path, { force: true });
    else {
      const { stderr, code, sleep = 0 } = recorded;
      const text = `cat >&2 <<'EOT'\n${stderr}\nEOT\n${sleep > 0 ? `exec sleep ${sleep}` : `exit ${code}`}\n`;
      writeFileSync(`${path}.new`, text);
      renameSync(`${path}.new`, path);
    }
  }

  /** What was run, as typed. */
  calls(command: keyof typeof COMMANDS): string[] {
    const path = this.#path("calls");
    const lines = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
    return lines.filter((line) => line.startsWith(`${command} `));
  }

  get jobs(): { readonly id: string; readonly state: string; readonly reason: string; readonly script: string }[] {
    if (!existsSync(this.#path("queue"))) return [];
    const lines = readFileSync(this.#path("queue"), "utf8").trim().split("\n").filter(Boolean);
    return lines.map((line) => {
      const [id = "", state = "", reason = "", script = ""] = line.split("|");
      return { id, state, reason, script };
    });
  }

  /** The job is in this state from now on; undefined: Slurm has forgotten it. */
  set(id: string, state: string | undefined, reason = "None"): void {
    const lines = this.jobs.flatMap((job) =>
      job.id !== id
        ? [`${job.id}|${job.state}|${job.reason}|${job.script}`]
        : state === undefined
          ? []
          : [`${id}|${state}|${reason}|${job.script}`],
    );
    writeFileSync(this.#path("queue.new"), lines.map((line) => `${line}\n`).join(""));
    renameSync(this.#path("queue.new"), this.#path("queue"));
  }
}
