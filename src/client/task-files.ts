/** Files that go with a job, read here, and files that its tasks return, written here. */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { badInput, errnoOf, LaboroError, whyUnreadable } from "../base/errors.js";
import { FileBeneath } from "../base/files/beneath.js";
import type { Submission } from "../model/job-input.js";
import { FILE_CHUNK } from "../model/outcome.js";
import { expandPaths, type TaskValues } from "../model/placeholders.js";
import { PLACEHOLDER } from "../model/recipe.js";
import { MAX_FILES, type ReturnedFile, ReturnedReader, returnedBy, type SentFile } from "../model/task-files.js";
import type { CallOptions, Client, JobHandle } from "./client.js";

/** Files sent at a time. */
const AT_ONCE = 8;

/** Describes the files that the tasks need, and folders with everything in them. `dir`: where their paths begin. */
export function describeFiles(patterns: readonly string[], tasks: Iterable<TaskValues>, dir: string): SentFile[] {
  const paths = new Set<string>();
  const varying = patterns.filter((pattern) => PLACEHOLDER.test(pattern));
  const fixed = patterns.filter((pattern) => !PLACEHOLDER.test(pattern));
  for (const path of expandPaths(fixed, { number: 0 }, "--send")) addPath(path, dir, paths);
  if (varying.length > 0)
    for (const values of tasks) for (const path of expandPaths(varying, values, "--send")) addPath(path, dir, paths);
  return [...paths].map((path) => {
    const { size, sha256, executable } = readThrough(join(dir, path), path);
    return { path, size, sha256, ...(executable ? { executable } : {}) };
  });
}

function addPath(path: string, dir: string, paths: Set<string>): void {
  if (paths.has(path)) return;
  let stat: fs.Stats;
  try {
    stat = fs.statSync(join(dir, path));
  } catch (cause) {
    throw badInput(`--send ${path}: it cannot be read: ${whyUnreadable(cause)}`, cause);
  }
  if (stat.isFile()) paths.add(path);
  else if (!stat.isDirectory()) throw badInput(`--send ${path}: expected a file or a folder`);
  else
    for (const entry of fs.readdirSync(join(dir, path), { withFileTypes: true })) {
      if (entry.isSymbolicLink())
        throw badInput(`--send ${path}: ${entry.name} in it is a link; name what it leads to`);
      addPath(`${path}/${entry.name}`, dir, paths);
    }
  if (paths.size > MAX_FILES) throw badInput(`--send: more than ${MAX_FILES} files; pack them into an archive`);
}

function readThrough(file: string, path: string): { size: number; sha256: string; executable: boolean } {
  const hash = createHash("sha256");
  const fd = openToSend(file, path);
  try {
    const { mode } = fs.fstatSync(fd);
    let size = 0;
    const buffer = Buffer.allocUnsafe(FILE_CHUNK);
    for (let read = -1; read !== 0; size += read) {
      read = fs.readSync(fd, buffer, 0, buffer.length, size);
      hash.update(buffer.subarray(0, read));
    }
    return { size, sha256: hash.digest("hex"), executable: (mode & 0o100) !== 0 };
  } finally {
    fs.closeSync(fd);
  }
}

function openToSend(file: string, path: string): number {
  try {
    return fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  } catch (cause) {
    throw badInput(`--send ${path}: it cannot be read: ${whyUnreadable(cause)}`, cause);
  }
}

/**
 * Submits a job with its files: those of `recipe.files.sent`, as returned by `describeFiles`, read below `dir`. The
 * tasks start when the broker has all of them. If one cannot be sent, or `signal` is aborted, the job is cancelled,
 * unless the connection was lost.
 */
export async function submitWithFiles(
  client: Client,
  submission: Submission,
  dir: string,
  options: CallOptions = {},
): Promise<JobHandle> {
  const { recipe, held = false } = submission;
  const sent = recipe.kind === "call" ? [] : (recipe.files?.sent ?? []);
  if (sent.length === 0) return client.submit(submission, options);
  // Not aborted: the job must be known to be cancelled.
  const job = await client.submit({ ...submission, held: true }, { ...options, signal: undefined });
  if (job.existed) return job;
  try {
    await sendFiles(client, job.id, sent, dir, options);
  } catch (cause) {
    const aborted = options.signal?.aborted === true;
    if (aborted || (cause instanceof LaboroError && !cause.code.startsWith("LABORO_BROKER_")))
      await job.cancel(undefined, "its files could not be sent");
    throw cause;
  }
  if (!held) await job.release(options);
  return job;
}

/** Sends the files of a job that the broker does not have yet. Can be called again after an interruption. */
export async function sendFiles(
  client: Client,
  job: number,
  sent: readonly SentFile[],
  dir: string,
  { signal }: CallOptions = {},
): Promise<void> {
  const left = [...sent.entries()].reverse();
  const sendNext = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) await sendFile(client, job, next, dir, signal);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, sendNext));
}

async function sendFile(
  client: Client,
  job: number,
  [file, given]: [number, SentFile],
  dir: string,
  signal?: AbortSignal,
): Promise<void> {
  const { path, size, sha256 } = given;
  const { stored } = await repeated(client, () => client.ask("sendFile", { job, file }, { signal }));
  if (stored >= size) return;
  const found = readThrough(join(dir, path), path);
  if (found.sha256 !== sha256)
    throw badInput(`--send ${path}: it has changed since it was submitted: submit the job again, or give --fresh`);
  const fd = openToSend(join(dir, path), path);
  try {
    for (let from = stored; from < size; ) {
      const bytes = Buffer.allocUnsafe(Math.min(FILE_CHUNK, size - from));
      const read = fs.readSync(fd, bytes, 0, bytes.length, from);
      // The worker compares the digest.
      if (read === 0) throw badInput(`--send ${path}: it became shorter while it was sent`);
      const part = { job, file, from, bytes: bytes.subarray(0, read) };
      from = (await repeated(client, () => client.ask("sendFile", part, { signal }))).stored;
    }
  } finally {
    fs.closeSync(fd);
  }
}

/** A lost connection does not end it: a part that comes twice counts once. */
async function repeated<T>(client: Client, act: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (cause) {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_GONE" || client.closed) throw cause;
    }
  }
}

interface Part {
  readonly bytes: Uint8Array;
  readonly next?: number;
}

/** Receives what one task has returned, into files below `dir`. Each appears under its name when it is complete. */
export class FileReceiver {
  readonly #dir: string;
  readonly #isExpected: (path: string) => boolean;

  /** `returns`: the patterns of the job. Nothing else is written. */
  constructor(returns: readonly string[], dir: string) {
    this.#dir = dir;
    const placeholders = new RegExp(PLACEHOLDER, "g");
    this.#isExpected = returnedBy(returns.map((one) => one.replace(/^(?:\.\/+)+/, "").replace(placeholders, "**")));
  }

  /** Returns the paths of the files. */
  async receive(client: Client, job: number, task: { readonly index: number; readonly attempt?: number }) {
    const { index, attempt } = task;
    const paths: string[] = [];
    let file: { readonly given: ReturnedFile; readonly out: FileBeneath } | undefined;
    let hash = createHash("sha256");
    const reader = new ReturnedReader({
      begin: (given) => {
        hash = createHash("sha256");
        file = { given, out: this.#open(given) };
      },
      bytes: (part) => {
        hash.update(part);
        file?.out.write(part);
      },
      end: (sha256) => {
        if (file === undefined || hash.digest("hex") !== sha256)
          throw new LaboroError("LABORO_DATA_CORRUPT", `${file?.given.path} did not arrive as it was sent`);
        file.out.keep();
        paths.push(file.given.path);
        file = undefined;
      },
    });
    try {
      for (let from: number | undefined = 0; from !== undefined; ) {
        const which = { job, index, from, ...(attempt === undefined ? {} : { attempt }) };
        const ask = (): Promise<Part> => client.ask("returnedFiles", which);
        const page: Part = await repeated(client, ask);
        reader.push(page.bytes);
        from = page.next;
      }
      if (!reader.complete) throw new LaboroError("LABORO_DATA_CORRUPT", "the end of the returned files is missing");
      return paths;
    } finally {
      file?.out.discard();
    }
  }

  #open({ path, executable }: ReturnedFile): FileBeneath {
    if (!this.#isExpected(path)) throw badInput(`the worker returned ${path}, which was not requested`);
    try {
      return new FileBeneath(this.#dir, path, executable === true ? 0o777 : 0o666);
    } catch (cause) {
      const reason = errnoOf(cause);
      const why =
        reason === "ELOOP" || reason === "ENOTDIR" ? "a link or a file is in its way" : (reason ?? String(cause));
      throw badInput(`${path} cannot be written here: ${why}`, cause);
    }
  }
}

/**
 * Writes the files that the ended tasks of a job have returned below `dir`, and returns their paths. A file of the same
 * name is replaced; links are not followed.
 */
export async function fetchFiles(client: Client, job: number, dir: string): Promise<string[]> {
  const { recipe } = await client.job(job).info();
  const receiver = new FileReceiver(recipe.files?.returns ?? [], dir);
  const paths: string[] = [];
  for await (const task of client.job(job).results()) paths.push(...(await receiver.receive(client, job, task)));
  return paths;
}
