/** Commands named as Slurm's in a folder of their own at the front of PATH. They keep a queue in a file, and replay recorded failures. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
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

/** Each job is a file, jobs/ID: its state, reason and script. */
const COMMANDS = {
  sbatch: `for script; do case "$script" in --output=*) output=${"$"}{script#--output=};; esac; done
case " $* " in *" --test-only "*) echo "sbatch: Job 1 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 in partition debug" >&2; exit 0;; esac
id=$(( $(cat last 2>/dev/null || echo 0) + 1 )); echo $id > last
note() { echo "$1|$script" > jobs/$id.new && mv jobs/$id.new jobs/$id; }
note "PENDING|Priority"
if [ -f runs ]; then (
  SLURM_JOB_ID=$id SLURM_PROCID=0 setsid "$script" > "$output" 2>&1 < /dev/null & echo $! > $id.pid
  note "RUNNING|None"
  if wait $!; then end=COMPLETED; else end=FAILED; fi
  case $(cat jobs/$id) in RUNNING*) note "$end|None";; esac
) > /dev/null 2>&1 & fi
echo $id
`,
  squeue: `cd jobs && for id in $(ls | grep -v new | sort -n); do echo "$id|$(cat $id)"; done; exit 0\n`,
  scancel: `for id; do
  [ -f jobs/$id ] && sed -i "s/^[A-Z]*|[^|]*|/CANCELLED|None|/" jobs/$id
  [ -f $id.pid ] && kill -TERM -$(cat $id.pid) 2>/dev/null
done; exit 0\n`,
};

export class SlurmStandIn {
  readonly dir = mkdtempSync(join(tmpdir(), "laboro-slurm-"));

  constructor() {
    mkdirSync(join(this.dir, "bin", "jobs"), { recursive: true });
    for (const [name, body] of Object.entries(COMMANDS)) {
      writeFileSync(this.#path(name), `${HEAD}${body}`);
      chmodSync(this.#path(name), 0o755);
    }
    const before = process.env.PATH;
    process.env.PATH = `${join(this.dir, "bin")}${delimiter}${before}`;
    atEnd(async () => {
      process.env.PATH = before;
      for (const { id } of this.jobs) this.kill(id);
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
    const ids = readdirSync(this.#path("jobs")).filter((name) => /^\d+$/.test(name));
    return ids
      .sort((a, b) => Number(a) - Number(b))
      .map((id) => {
        const [state = "", reason = "", script = ""] = readFileSync(this.#path(`jobs/${id}`), "utf8")
          .trim()
          .split("|");
        return { id, state, reason, script };
      });
  }

  /** The job is in this state from now on; undefined: Slurm has forgotten it. */
  set(
    id: string,
    state: string | undefined,
    reason = "None",
    script = this.jobs.find((job) => job.id === id)?.script,
  ): void {
    const path = this.#path(`jobs/${id}`);
    if (state === undefined) rmSync(path);
    else {
      writeFileSync(`${path}.new`, `${state}|${reason}|${script}\n`);
      renameSync(`${path}.new`, path);
    }
  }

  /** Another program that the job scripts find. */
  program(name: string, line: string): void {
    writeFileSync(this.#path(name), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
  }

  /** From now on the job scripts are run, as soon as they are asked for. */
  runJobs(): void {
    writeFileSync(this.#path("runs"), "");
  }

  /** Every process of the job ends at once, as if its node had. */
  kill(id: string): void {
    const path = this.#path(`${id}.pid`);
    if (!existsSync(path)) return;
    try {
      process.kill(-Number(readFileSync(path, "utf8")), "SIGKILL");
    } catch {
      // It has ended.
    }
  }
}
