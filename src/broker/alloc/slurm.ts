/** Slurm by the user's own commands (sbatch, squeue, scancel), and the files of its jobs. */
import { type ExecFileException, type ExecFileOptionsWithStringEncoding, execFile } from "node:child_process";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
} from "node:fs";
import { homedir, userInfo } from "node:os";
import { delimiter, join } from "node:path";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { workerBundle } from "../../base/package.js";
import { type AllocatorSpec, allocationTag, lifetimeOf } from "../../model/allocation.js";
import { type AskRequest, BatchError, type BatchManager, type FailureKind, type QueueEntry } from "./batch-manager.js";

/** sbatch sleeps for two minutes where the queue is full. */
const COMMAND_TIMEOUT_MS = 20_000;
/** Variables that change what the commands do: a broker may run in an allocation itself. */
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

/** What sbatch and squeue say, by its kind; refused if none fits. */
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
      ...["sbatch", "--parsable", `--cpus-per-task=${slots}`, ...args],
      ...[`--job-name=${jobName(name)}`, `--nodes=${nodes}`, ...(nodes > 1 ? ["--ntasks-per-node=1"] : [])],
      // In the name of this file, %j and its like stand for numbers.
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
      execFile(program, args, options, (cause, stdout, stderr) => {
        if (cause === null) resolve({ stdout, stderr });
        else reject(this.#failure(program, cause, `${stderr}\n${stdout}`));
      });
    });
  }

  #failure(program: string, cause: ExecFileException, said: string): BatchError {
    const { code, killed } = cause;
    if (code === "ENOENT" || code === "EACCES") return new BatchError("missing", `${program} is not installed here`);
    const text = messageOf(said);
    if (killed === true) {
      const kind = classifyMessage(text);
      // It repeats by itself what it could not submit, so nothing was accepted.
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

// The files of an allocation, in a directory that the broker's machine and the nodes share: its script, its output, the worker, the join URL.

const TAIL_BYTES = 2_000;

/** Where they lie if the allocator names no directory. */
export const defaultDirectory = (): string => join(homedir(), ".local", "share", "laboro", "alloc");

/** Each store has a directory of its own there: a job whose script lies in it was asked for by this store's brokers. */
const storeDirectory = ({ dir }: AllocatorSpec, identity: string): string => join(dir, identity.slice(0, 12));

export function filesOf(spec: AllocatorSpec, identity: string, name: string, number: number) {
  const store = storeDirectory(spec, identity);
  const dir = join(store, `${name}.${number}`);
  return { store, dir, joinUrl: join(store, "join.url"), script: join(dir, "job.sh"), output: join(dir, "output.txt") };
}

/** Each version has a file of its own: jobs that are queued still name the one of before. */
const workerCopy = (store: string, { sha256 }: ReturnType<typeof workerBundle>): string =>
  join(store, `laboro-worker-${sha256.slice(0, 12)}.cjs`);

export function requestFor(spec: AllocatorSpec, identity: string, name: string, number: number): AskRequest {
  const { script, output } = filesOf(spec, identity, name, number);
  const { timeLimitMs, nodes, slots, args } = spec;
  return { name, script, output, timeLimitMs, nodes, slots, args };
}

/**
 * On each node a shell of its own starts the worker, and removes its directory afterwards. Slurm sends SIGTERM to the worker, too: the
 * shell outlives it.
 */
const START = `trap : TERM; dir=\${TMPDIR:-/tmp}/laboro-$SLURM_JOB_ID.$SLURM_PROCID; "$@" --dir "$dir" --name "$0NAME"; code=$?; rm -rf "$dir"; exit $code`;

export function scriptText(spec: AllocatorSpec, identity: string, name: string, number: number): string {
  const { nodes, slots, pool, tags, resources, idleTimeoutMs, before } = spec;
  const files = filesOf(spec, identity, name, number);
  const worker = [
    ...[process.execPath, workerCopy(files.store, workerBundle())],
    ...["--join", `@${files.joinUrl}`, "--pool", pool, "--slots", String(slots)],
    ...[
      "--lifetime",
      `${Math.floor(lifetimeOf(spec) / 1000)}s`,
      "--idle-timeout",
      `${Math.ceil(idleTimeoutMs / 1000)}s`,
    ],
    ...[allocationTag(name, number), ...tags].flatMap((tag) => ["--tag", tag]),
    ...Object.entries(resources).flatMap(([resource, amount]) => ["--resource", `${resource}=${amount}`]),
  ];
  const own = `${name}.${number}`;
  const [srun, start] =
    nodes === 1
      ? ["", START.replace("NAME", "")]
      : [`srun --kill-on-bad-exit=0 --cpus-per-task=${slots} `, START.replace("NAME", ".$SLURM_PROCID")];
  return [
    "#!/bin/sh",
    `# Allocation ${own} of laboro: a worker for as long as the allocation lasts. Written by the broker.`,
    "unset LABORO_BROKER LABORO_DATA LABORO_TOKEN",
    ...(before === undefined ? [] : [before]),
    `set -- ${worker.map(quoted).join(" ")}`,
    `exec ${srun}sh -c ${quoted(start)} ${own} "$@"`,
    "",
  ].join("\n");
}

const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The first number whose files no former allocator of this name has left: its allocations may still run. */
export function firstNumber(spec: AllocatorSpec, identity: string, name: string): number {
  const { store } = filesOf(spec, identity, name, 0);
  const used = existsSync(store) ? readdirSync(store).filter((file) => file.startsWith(`${name}.`)) : [];
  return 1 + Math.max(0, ...used.map((file) => Number(file.slice(name.length + 1)) || 0));
}

/** Writes the files before the allocation is asked for. The join URL holds a token, so it is never on a command line. */
export function writeFiles(spec: AllocatorSpec, identity: string, name: string, number: number, joinUrl: string): void {
  const files = filesOf(spec, identity, name, number);
  openPrivateDirectory(files.store);
  writeJoinUrl(spec, identity, joinUrl);
  const bundle = workerBundle();
  const copy = workerCopy(files.store, bundle);
  if (!existsSync(copy)) writeFileAtomically(copy, readFileSync(bundle.path));
  openPrivateDirectory(files.dir);
  writeFileAtomically(files.script, scriptText(spec, identity, name, number), 0o700);
}

/** Another broker may have taken over, or this one another port, since allocations were asked for. */
export function writeJoinUrl(spec: AllocatorSpec, identity: string, joinUrl: string): void {
  const path = join(storeDirectory(spec, identity), "join.url");
  if (
    existsSync(storeDirectory(spec, identity)) &&
    !(existsSync(path) && readFileSync(path, "utf8") === `${joinUrl}\n`)
  )
    writeFileAtomically(path, `${joinUrl}\n`);
}

export function removeFiles(spec: AllocatorSpec, identity: string, name: string, number: number): void {
  rmSync(filesOf(spec, identity, name, number).dir, { recursive: true, force: true });
}

/** The last line that the job script wrote, for a message about its failure. */
export function lastLine(spec: AllocatorSpec, identity: string, name: string, number: number): string | undefined {
  try {
    const fd = openSync(filesOf(spec, identity, name, number).output, "r");
    try {
      const bytes = Buffer.alloc(TAIL_BYTES);
      const from = Math.max(0, fstatSync(fd).size - TAIL_BYTES);
      const text = bytes.toString("utf8", 0, readSync(fd, bytes, 0, TAIL_BYTES, from));
      return text.trim().split("\n").at(-1)?.slice(0, 300) || undefined;
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined;
  }
}
