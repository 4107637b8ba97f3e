/**
 * The files of an allocator, in a directory that the broker's machine and the nodes share: the worker and the join URL,
 * and for each allocation its job script and output.
 */
import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { workerBundle } from "../../base/package.js";
import type { QueueEntry } from "./batch-manager.js";

const TAIL_BYTES = 2_000;

/** The directory of an allocator that names none. */
export const defaultDirectory = (): string => join(homedir(), ".local", "share", "laboro", "alloc");

export class AllocationFiles {
  readonly joinUrl: string;
  readonly storeId: string;
  /** Each store has its own directory. A job whose script is in it was requested by a broker of this store. */
  readonly #store: string;
  readonly #name: string;

  constructor(dir: string, identity: string, name: string) {
    this.storeId = identity.slice(0, 12);
    this.#store = join(dir, this.storeId);
    this.#name = name;
    this.joinUrl = join(this.#store, "join.url");
  }

  of(number: number): { readonly dir: string; readonly script: string; readonly output: string } {
    const dir = join(this.#store, `${this.#name}.${number}`);
    return { dir, script: join(dir, "job.sh"), output: join(dir, "output.txt") };
  }

  /** The jobs that run scripts of this allocator, by allocation number. */
  jobsOf(entries: readonly QueueEntry[]): Map<number, QueueEntry> {
    const jobs = new Map<number, QueueEntry>();
    for (const entry of entries) {
      const number = Number(entry.script.slice(this.#store.length + this.#name.length + 2, -"/job.sh".length));
      if (entry.script === this.of(number).script) jobs.set(number, entry);
    }
    return jobs;
  }

  /** Each version of the worker has a file of its own: queued jobs still name the earlier one. */
  get worker(): string {
    return join(this.#store, `laboro-worker-${workerBundle().sha256.slice(0, 12)}.cjs`);
  }

  /** Call this before the allocation is requested. The join URL contains a token, so it is never on a command line. */
  write(number: number, script: string, joinUrl: string): void {
    openPrivateDirectory(this.#store);
    this.writeJoinUrl(joinUrl);
    if (!existsSync(this.worker)) writeFileAtomically(this.worker, readFileSync(workerBundle().path));
    const files = this.of(number);
    openPrivateDirectory(files.dir);
    writeFileAtomically(files.script, script, 0o700);
  }

  /** The broker and its port may have changed since allocations were requested. */
  writeJoinUrl(joinUrl: string): void {
    const text = `${joinUrl}\n`;
    if (!existsSync(this.#store) || (existsSync(this.joinUrl) && readFileSync(this.joinUrl, "utf8") === text)) return;
    writeFileAtomically(this.joinUrl, text);
  }

  remove(number: number): void {
    rmSync(this.of(number).dir, { recursive: true, force: true });
  }

  /** The last line that the job script wrote, for a message about its failure. */
  lastLine(number: number): string | undefined {
    try {
      const fd = openSync(this.of(number).output, "r");
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
}
