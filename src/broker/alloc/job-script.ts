/** The files of an allocation, in a directory that the broker's machine and the nodes share: its script, its output, the worker, the join URL. */
import { closeSync, existsSync, fstatSync, openSync, readdirSync, readFileSync, readSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { workerBundle } from "../../base/package.js";
import { type AllocatorSpec, allocationTag, lifetimeOf } from "../../model/allocation.js";
import type { AskRequest } from "./batch-manager.js";

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
