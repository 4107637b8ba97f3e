/** Slurm by the user's own commands: sbatch, squeue and scancel. */
import { type ExecFileException, type ExecFileOptionsWithStringEncoding, execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { userInfo } from "node:os";
import { delimiter, join } from "node:path";
import { type AskRequest, BatchError, type BatchManager, type FailureKind, type QueueEntry } from "./batch-manager.js";

const COMMAND_TIMEOUT_MS = 20_000;
/** If the queue is full, sbatch reports it and retries for two minutes. */
const SLEEPS = /sleeping and retrying/;
/** Variables that change the behaviour of the commands: a broker may itself run in an allocation. */
const HIDDEN = /^(LABORO_|SQUEUE_|SCANCEL_|SLURM_(?!CONF$))/;
const MAX_OUTPUT = 64 * 1024 * 1024;
const MAX_MESSAGE = 500;

const STATES: Readonly<Record<string, QueueEntry["state"]>> = {
  ...{ PENDING: "queued", CONFIGURING: "queued", REQUEUED: "queued", REQUEUE_HOLD: "queued", REQUEUE_FED: "queued" },
  ...{ SPECIAL_EXIT: "queued", RESV_DEL_HOLD: "queued" },
  ...{ RUNNING: "running", COMPLETING: "running", SUSPENDED: "running", STOPPED: "running", SIGNALING: "running" },
  ...{ RESIZING: "running", STAGE_OUT: "running" },
  ...{ COMPLETED: "ended", FAILED: "ended", TIMEOUT: "ended", CANCELLED: "ended", NODE_FAIL: "ended" },
  ...{ PREEMPTED: "ended", OUT_OF_MEMORY: "ended", BOOT_FAIL: "ended", DEADLINE: "ended", REVOKED: "ended" },
  ...{ LAUNCH_FAILED: "ended", RECONFIG_FAIL: "ended" },
};

const TAKEN = ["PREEMPTED", "NODE_FAIL"];
/** Ends that are no fault of the allocator or of its workers. */
const GOOD_ENDS = ["COMPLETED", "TIMEOUT", ...TAKEN];

/** Reasons of a waiting job that do not pass while the partition, the account and the request stay as they are. */
const NEVER =
  /^(launch failed requeued held|job requeued in held state|PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|BadConstraints|InvalidAccount|InvalidQOS|DependencyNeverSatisfied|(Assoc|QOS)Max\w*(PerJob|PerJobLimit|MinutesPerJob|WallDurationPerJobLimit)\w*)$/;

/** Messages of sbatch and squeue, by kind of failure; `refused` if none matches. */
const MESSAGES: readonly (readonly [RegExp, FailureKind])[] = [
  [/submit limit|MaxSubmitJob|temporarily unable to accept|Resource temporarily unavailable|MaxJobCount/i, "full"],
  [
    /Unable to contact|Socket timed out|Connection (refused|timed out|reset)|Transport endpoint|Protocol authentication error|Zero Bytes|standby|communication|munge|slurm_load_jobs error: (?!Invalid)|Configuration (load|file)|could not establish a configuration source|resolve|fork|Too many open files/i,
    "unreachable",
  ],
];

const classifyMessage = (message: string): FailureKind =>
  MESSAGES.find(([pattern]) => pattern.test(message))?.[1] ?? "refused";

/** The lines that say why, without the name of the program. */
function messageOf(stderr: string): string {
  const lines = stderr
    .split("\n")
    .map((line) => line.replace(/^(sbatch|squeue|scancel): (error: )?/, "").trim())
    .filter((line) => line !== "");
  return lines.join("; ").slice(0, MAX_MESSAGE);
}

interface Ended {
  readonly stdout: string;
  readonly stderr: string;
}

export class Slurm implements BatchManager {
  readonly script = {
    jobId: "$SLURM_JOB_ID",
    node: "$SLURM_PROCID",
    onEachNode: (slots: number) => `srun --kill-on-bad-exit=0 --cpus-per-task=${slots}`,
  };
  readonly #timeoutMs: number;

  constructor(timeoutMs = COMMAND_TIMEOUT_MS) {
    this.#timeoutMs = timeoutMs;
  }

  available(): boolean {
    return (process.env.PATH ?? "").split(delimiter).some((dir) => {
      try {
        accessSync(join(dir, "sbatch"), constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  }

  command({ name, script, output, timeLimitMs, nodes, slots, args }: AskRequest): readonly string[] {
    return [
      // A requeued job writes to the same file.
      ...["sbatch", "--parsable", "--open-mode=append", `--cpus-per-task=${slots}`, ...args],
      ...[`--job-name=${jobName(name)}`, `--nodes=${nodes}`, ...(nodes > 1 ? ["--ntasks-per-node=1"] : [])],
      // In the name of this file, %j and similar codes stand for numbers.
      ...[`--time=${Math.ceil(timeLimitMs / 60_000)}`, `--output=${output.replaceAll("%", "%%")}`, script],
    ];
  }

  async ask(request: AskRequest): Promise<string> {
    const [program = "", ...args] = this.command(request);
    const { stdout, stderr } = await this.#run(program, args);
    // With several clusters the id is followed by the name of one.
    const [, id] = /^(\d+)(?:;.*)?$/m.exec(stdout) ?? [];
    if (id === undefined) throw new BatchError("lost", `sbatch gave no job id: ${messageOf(`${stdout}\n${stderr}`)}`);
    return id;
  }

  async test(request: AskRequest): Promise<string> {
    const [program = "", ...args] = this.command(request);
    return messageOf((await this.#run(program, ["--test-only", ...args])).stderr);
  }

  async list(names: readonly string[]): Promise<readonly QueueEntry[]> {
    const user = process.getuid?.() ?? userInfo().username;
    const { stdout } = await this.#run("squeue", [
      ...["--noheader", "--states=all", `--user=${user}`, `--name=${names.map(jobName).join(",")}`],
      "--format=%i|%T|%r|%o",
    ]);
    return stdout.split("\n").flatMap((line) => entryOf(line) ?? []);
  }

  async cancel(ids: readonly string[]): Promise<void> {
    await this.#run("scancel", ids);
  }

  #run(program: string, args: readonly string[]): Promise<Ended> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !HIDDEN.test(name)));
    const options: ExecFileOptionsWithStringEncoding = {
      ...{ encoding: "utf8", timeout: this.#timeoutMs, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT },
      env: { ...env, LC_ALL: "C" },
    };
    return new Promise((resolve, reject) => {
      const child = execFile(program, args, options, (cause, stdout, stderr) => {
        if (cause === null) resolve({ stdout, stderr });
        else reject(this.#failure(program, cause, `${stderr}\n${stdout}`));
      });
      child.stderr?.on("data", (text: string) => SLEEPS.test(text) && child.kill("SIGKILL"));
    });
  }

  #failure(program: string, cause: ExecFileException, said: string): BatchError {
    const { code, killed } = cause;
    if (code === "ENOENT" || code === "EACCES") return new BatchError("missing", `${program} is not installed here`);
    const text = messageOf(said);
    if (program !== "sbatch") {
      // The state of jobs stays unknown, whatever the cause is.
      const silent = killed === true ? `did not answer within ${this.#timeoutMs / 1000} s` : `failed: ${code}`;
      return new BatchError("unreachable", text === "" ? `${program} ${silent}` : text);
    }
    if (killed === true) {
      const kind = classifyMessage(text);
      // sbatch retries full queues by itself, so nothing was accepted.
      if (kind === "full") return new BatchError(kind, text);
      return new BatchError(
        "lost",
        `${program} did not answer within ${this.#timeoutMs / 1000} s${text && `: ${text}`}`,
      );
    }
    if (typeof code !== "number") return new BatchError("unreachable", `${program}: ${cause.message.split("\n")[0]}`);
    return new BatchError(classifyMessage(text), text === "" ? `${program} failed with exit code ${code}` : text);
  }
}

const jobName = (allocator: string): string => `laboro-${allocator}`;

function entryOf(line: string): QueueEntry | undefined {
  const [, id, word, reason, script] = /^(\d+)\|(\w+)[^|]*\|([^|]*)\|(.*)$/.exec(line) ?? [];
  if (id === undefined || word === undefined || script === undefined) return undefined;
  const state = STATES[word] ?? "unknown";
  return {
    ...{ id, state, word, script, good: GOOD_ENDS.includes(word), taken: TAKEN.includes(word) },
    never: state === "queued" && NEVER.test(reason ?? ""),
    ...(reason === undefined || reason === "None" || reason === "" ? {} : { reason }),
  };
}
