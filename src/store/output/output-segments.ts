/**
 * The output of tasks at one broker: `<directory>/<job>/<n>.seg`, append-only segments of checksummed records
 * (segment-files.ts). All calls are synchronous, because they run in the store's thread. A chunk that is already stored
 * is skipped, one that overlaps stored output is cut to its new part, one that begins beyond it leaves a gap. A failed
 * append leaves its job unchanged: the file is truncated, so the same chunks can be given again.
 *
 *   working   accepts chunks
 *   failed    a sync has failed, other than for a full disk or a lack of descriptors. The system may have dropped
 *             unwritten pages and still show them, so the state of the files is unknown: every later append and sync
 *             fails with the same error until the segments are opened again
 *
 * Also a cache of open files by path. At its limit, it closes the least recently used file. Files are read and written
 * at explicit positions, so closing and reopening one changes nothing.
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { errnoOf, type LaboroError, passesByItself } from "../../base/errors.js";
import { syncDirectory, writeFailure, writeFully } from "../../base/files/durable.js";
import { type Attempt, JobId, type TaskIndex } from "../../model/ids.js";
import type { OutputChunk } from "../../model/store.js";
import { JobSegments, type ReadOptions, readOutput, type SegmentDamage, type SegmentOutputPage } from "./read.js";
import {
  attemptKey,
  checkChunk,
  decodeReference,
  type Extents,
  recordSize,
  type StoredChunk,
  writeChunk,
} from "./segment-files.js";

class OpenFiles {
  readonly #limit: number;
  /** In order of last use, the oldest first. */
  readonly #descriptors = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = Math.max(1, limit);
  }

  get count(): number {
    return this.#descriptors.size;
  }

  /** The descriptor of the file, valid until the next call. */
  use(path: string, create = false): number {
    const open = this.#descriptors.get(path);
    if (open !== undefined) {
      this.#descriptors.delete(path);
      this.#descriptors.set(path, open);
      return open;
    }
    for (const oldest of this.#descriptors.keys()) {
      if (this.#descriptors.size < this.#limit) break;
      this.close(oldest);
    }
    const flags = create ? fs.constants.O_RDWR | fs.constants.O_CREAT : fs.constants.O_RDWR;
    const fd = this.#open(path, flags);
    this.#descriptors.set(path, fd);
    return fd;
  }

  /** If the process has no descriptor left, closes files of this cache. */
  #open(path: string, flags: number): number {
    try {
      return fs.openSync(path, flags, 0o600);
    } catch (cause) {
      if (errnoOf(cause) !== "EMFILE" || this.#descriptors.size === 0) throw cause;
      this.closeAll();
      return fs.openSync(path, flags, 0o600);
    }
  }

  close(path: string): void {
    const fd = this.#descriptors.get(path);
    if (fd === undefined) return;
    this.#descriptors.delete(path);
    fs.closeSync(fd);
  }

  closeAll(): void {
    for (const path of [...this.#descriptors.keys()]) this.close(path);
  }
}

interface OutputSettings {
  /** At this size a new segment begins. */
  readonly segmentBytes?: number;
  readonly openFiles?: number;
}

export interface AttemptOutput {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** The extents of its output, as stored with its result; absent until the attempt is released. */
  readonly reference?: Uint8Array;
}

export class OutputSegments {
  readonly #directory: string;
  readonly #segmentBytes: number;
  readonly #files: OpenFiles;
  readonly #jobs = new Map<JobId, JobSegments>();
  /** Segments written, and directories with new names in them, since the last sync. */
  readonly #unsynced = new Set<string>();
  readonly #unsyncedDirectories = new Set<string>();
  #failed: LaboroError | undefined;

  constructor(directory: string, settings: OutputSettings = {}) {
    this.#directory = directory;
    this.#segmentBytes = settings.segmentBytes ?? 64 * 1024 * 1024;
    this.#files = new OpenFiles(settings.openFiles ?? 64);
    if (fs.mkdirSync(directory, { recursive: true, mode: 0o700 }) !== undefined)
      this.#unsyncedDirectories.add(dirname(directory));
    for (const name of fs.readdirSync(directory)) {
      if (/^\d+$/.test(name)) this.#job(JobId(Number(name))).loadSizes();
    }
  }

  /** Bytes of all segments of all jobs. */
  get bytesUsed(): number {
    let sum = 0;
    for (const job of this.#jobs.values()) sum += job.bytes;
    return sum;
  }

  get openFiles(): number {
    return this.#files.count;
  }

  /** The jobs with output on disk. */
  jobs(): JobId[] {
    return [...this.#jobs].filter(([, job]) => job.directoryExists).map(([id]) => id);
  }

  append(chunks: readonly OutputChunk[]): void {
    if (this.#failed !== undefined) throw this.#failed;
    for (const chunk of chunks) checkChunk(chunk);
    const byJob = new Map<JobId, OutputChunk[]>();
    for (const chunk of chunks) {
      const list = byJob.get(chunk.job);
      if (list === undefined) byJob.set(chunk.job, [chunk]);
      else list.push(chunk);
    }
    for (const [id, list] of byJob) this.#appendTo(this.#job(id), list);
  }

  /** Makes everything that was appended durable. */
  sync(): void {
    if (this.#failed !== undefined) throw this.#failed;
    try {
      for (const path of this.#unsynced) {
        fs.fdatasyncSync(this.#files.use(path));
        this.#unsynced.delete(path);
      }
      for (const path of this.#unsyncedDirectories) {
        syncDirectory(path);
        this.#unsyncedDirectories.delete(path);
      }
    } catch (cause) {
      const failure = writeFailure(cause, "cannot sync output");
      if (!passesByItself(failure.code)) this.#failed = failure;
      throw failure;
    }
  }

  /** How much of an attempt is stored: the offset from which its worker continues. */
  storedEnd(job: JobId, index: TaskIndex, attempt: Attempt): number {
    return this.#extents(job, index, attempt)?.end ?? 0;
  }

  /** The extents of the attempt's output, to be stored with its result; undefined if it has none. */
  reference(job: JobId, index: TaskIndex, attempt: Attempt): Uint8Array | undefined {
    return this.#extents(job, index, attempt)?.encode();
  }

  /** Forgets the extents of an attempt. Its bytes stay and can be read by reference. */
  release(job: JobId, index: TaskIndex, attempt: Attempt): void {
    this.#jobs.get(job)?.attempts.delete(attemptKey(index, attempt));
  }

  /** The stored output belongs to another attempt with this number. From here on it does not count. */
  void(job: JobId, index: TaskIndex, attempt: Attempt): void {
    const marker: StoredChunk = { index, attempt, stream: "stdout", offset: 0, bytes: new Uint8Array(0) };
    this.#write(this.#job(job), [marker], recordSize(marker));
    this.release(job, index, attempt);
  }

  /** The attempts of a job that were not released. */
  unreleased(job: JobId): { readonly index: TaskIndex; readonly attempt: Attempt }[] {
    const keys = this.#jobs.get(job)?.attempts.keys() ?? [];
    return [...keys].map((key) => ({ index: key % 2 ** 32, attempt: Math.floor(key / 2 ** 32) }));
  }

  read(of: AttemptOutput, options: ReadOptions): SegmentOutputPage {
    const job = this.#jobs.get(of.job);
    if (job === undefined) return { pieces: [], gaps: [] };
    const extents =
      of.reference === undefined
        ? (this.#extents(of.job, of.index, of.attempt)?.list ?? [])
        : decodeReference(of.reference);
    return readOutput(of, extents, options, (segment) => {
      try {
        return this.#files.use(job.path(segment));
      } catch (cause) {
        if (errnoOf(cause) === "ENOENT") return `segment ${segment} is not there`;
        throw writeFailure(cause, `cannot open ${job.path(segment)}`);
      }
    });
  }

  /** Called once after a start, for a job that may continue: finds attempts, which the caller releases or keeps. */
  recover(id: JobId): readonly SegmentDamage[] {
    const job = this.#jobs.get(id);
    if (job === undefined || !job.directoryExists) return [];
    try {
      const damage = job.recover((path) => this.#files.use(path));
      // Earlier writes may not be synced yet, and new records will follow them.
      for (const segment of job.list()) this.#unsynced.add(job.path(segment));
      this.#unsyncedDirectories.add(job.directory);
      return damage;
    } catch (cause) {
      throw writeFailure(cause, `cannot recover the output of job ${id}`);
    }
  }

  remove(id: JobId): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    for (const segment of job.directoryExists ? job.list() : []) {
      this.#files.close(job.path(segment));
      this.#unsynced.delete(job.path(segment));
    }
    this.#unsyncedDirectories.delete(job.directory);
    this.#jobs.delete(id);
    fs.rmSync(job.directory, { recursive: true, force: true });
  }

  close(): void {
    this.#files.closeAll();
  }

  #job(id: JobId): JobSegments {
    let job = this.#jobs.get(id);
    if (job === undefined) {
      job = new JobSegments(join(this.#directory, String(id)));
      this.#jobs.set(id, job);
    }
    return job;
  }

  #extents(job: JobId, index: TaskIndex, attempt: Attempt): Extents | undefined {
    return this.#jobs.get(job)?.attempts.get(attemptKey(index, attempt));
  }

  #appendTo(job: JobSegments, chunks: readonly OutputChunk[]): void {
    let run: StoredChunk[] = [];
    let bytes = 0;
    for (const chunk of job.newParts(chunks)) {
      const size = recordSize(chunk);
      if (job.size + bytes > 0 && job.size + bytes + size > this.#segmentBytes) {
        if (run.length > 0) this.#write(job, run, bytes);
        job.segment++;
        job.size = 0;
        run = [];
        bytes = 0;
      }
      run.push(chunk);
      bytes += size;
    }
    if (run.length > 0) this.#write(job, run, bytes);
  }

  /** One write for all chunks of the run, into the newest segment. */
  #write(job: JobSegments, run: readonly StoredChunk[], bytes: number): void {
    const buffer = Buffer.allocUnsafe(bytes);
    const ends: number[] = [];
    let at = 0;
    for (const chunk of run) {
      at = writeChunk(buffer, at, chunk);
      ends.push(at);
    }
    const path = job.path(job.segment);
    try {
      if (!job.directoryExists) {
        makeJobDirectory(job.directory);
        job.directoryExists = true;
        this.#unsyncedDirectories.add(this.#directory);
      }
      const fd = this.#files.use(path, true);
      if (job.size === 0) this.#unsyncedDirectories.add(job.directory);
      this.#unsynced.add(path);
      try {
        writeFully(fd, buffer, job.size);
      } catch (cause) {
        this.#truncate(job, fd);
        throw cause;
      }
    } catch (cause) {
      throw writeFailure(cause, `cannot write output to ${path}`);
    }
    let position = job.size;
    for (const [number, chunk] of run.entries()) {
      const end = job.size + (ends[number] ?? position);
      job.addExtent(chunk, position, end - position);
      position = end;
    }
    job.size += bytes;
    job.bytes += bytes;
  }

  #truncate(job: JobSegments, fd: number): void {
    try {
      fs.ftruncateSync(fd, job.size);
    } catch {
      // The partial record cannot be removed, so nothing may be written after it. The caller gets the error of the
      // write.
      job.segment++;
      job.size = 0;
    }
  }
}

/** Not its parents: in a data directory that was moved away the output would be apart from the rows that refer to it. */
function makeJobDirectory(directory: string): void {
  try {
    fs.mkdirSync(directory, { mode: 0o700 });
  } catch (cause) {
    if (errnoOf(cause) !== "EEXIST") throw cause;
  }
}

// The owner of the segments: the file `store` in their directory contains the store's identity. Segments of another
// store, and of jobs beyond the store's last number, are unknown to it: it was restored from a copy, or its log was
// damaged. They are moved aside, so that no job of this store gets their output.

/** Returns a message for the operator and the highest job number among the unknown output, if there is any. */
export function setAsideUnknownOutput(directory: string, identity: string, nextJob: number) {
  fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  const ownerFile = join(directory, "store");
  // A crash may have emptied this file. Then only the job numbers are compared.
  const owner = fs.existsSync(ownerFile) ? fs.readFileSync(ownerFile, "utf8") : "";
  const foreign = owner !== "" && owner !== identity;
  const jobs = fs.readdirSync(directory).filter((name) => /^\d+$/.test(name));
  const unknown = jobs.map(Number).filter((job) => foreign || job >= nextJob);
  const aside = unknown.length > 0 ? fs.mkdtempSync(join(dirname(directory), "unknown-output-")) : undefined;
  if (aside !== undefined) {
    for (const job of unknown) fs.renameSync(join(directory, String(job)), join(aside, String(job)));
    for (const changed of [aside, directory, dirname(directory)]) syncDirectory(changed);
  }
  if (owner !== identity) fs.writeFileSync(ownerFile, identity, { mode: 0o600 });
  if (aside === undefined) return undefined;
  const lastJob = unknown.reduce((most, job) => Math.max(most, job));
  const what = `the store does not know the output of ${unknown.length} jobs, the last is job ${lastJob}`;
  return { lastJob, message: `${what}: it was moved to ${aside}. New jobs get higher numbers` };
}
