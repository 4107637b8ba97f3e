/**
 * Files that are sent with a job, and files that its tasks return. Each task with such files runs in its own folder at
 * the worker.
 *
 * The store keeps their bytes as output of tasks that no job has: sent files as output of the tasks from SENT_FROM on,
 * first attempt; returned files as output of the task's index + RETURNED_FROM, by attempt. So they are durable, read by
 * offset, counted and removed like output, in every store.
 *
 * An attempt returns a list of records: the length of a header in four bytes, the header as JSON, the bytes of the
 * file, their SHA-256.
 */
import { badInput, LaboroError } from "../base/errors.js";
import type { TaskIndex } from "./ids.js";

export interface SentFile {
  readonly path: string;
  readonly size: number;
  /** In hexadecimal digits. */
  readonly sha256: string;
  readonly executable?: boolean | undefined;
}

export interface TaskFiles {
  /** All files sent with the job. */
  readonly sent?: readonly SentFile[];
  /** Files and folders that a task gets, with placeholders; all if absent. */
  readonly use?: readonly string[];
  /** Files and folders that a task returns, with placeholders, `*`, `?` and `**`. */
  readonly returns?: readonly string[];
}

/** Above any index of a task, see MAX_TASKS; the numbers fit into 31 bits. */
const RETURNED_FROM = 1_000_000_000;
const SENT_FROM = 2_000_000_000;

export const sentIndex = (file: number): TaskIndex => SENT_FROM + file;
export const returnedIndex = (index: TaskIndex): TaskIndex => RETURNED_FROM + index;
export const isFileIndex = (index: TaskIndex): boolean => index >= RETURNED_FROM;

/** Files of a job, and files that a task returns. */
export const MAX_FILES = 10_000;
/** The sum of their sizes. */
export const MAX_FILE_BYTES = 64 * 1024 ** 3;
/** Unanswered messages for one file. */
export const FILE_WINDOW = 4;
export const MAX_PATH = 4096;
const MAX_HEADER = 8 * MAX_PATH;

/** Why a path cannot be used in a folder; undefined if it can. */
function pathFault(path: string): string | undefined {
  if (path === "" || path.includes("\0")) return "is not the name of a file";
  if (path.startsWith("/")) return "is absolute: give it relative to the current directory";
  if (path.split("/").some((part) => part === "" || part === "." || part === ".."))
    return "has an empty part, . or .. in it";
  return Buffer.byteLength(path) > MAX_PATH ? `is longer than ${MAX_PATH} bytes` : undefined;
}

export function checkedPath(path: string, what: string): string {
  const fault = pathFault(path);
  if (fault === undefined) return path;
  throw badInput(
    `${what}: ${JSON.stringify(path.slice(0, 200))} ${fault}; expected a relative path such as data/x.csv`,
  );
}

/** The files that a task gets, as places in the list. `wanted`: the names that it gives; all if absent. */
export function filesOfTask(sent: readonly SentFile[], wanted: readonly string[] | undefined): number[] {
  if (wanted === undefined) return [...sent.keys()];
  const isIn = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);
  const missing = wanted.find((one) => !sent.some(({ path }) => isIn(path, one)));
  if (missing !== undefined) throw new LaboroError("LABORO_FILE_MISSING", `${missing} was not sent with the job`);
  return sent.flatMap(({ path }, place) => (wanted.some((one) => isIn(path, one)) ? [place] : []));
}

/** Decides which files a task returns. A folder stands for everything in it. */
export function returnedBy(patterns: readonly string[]): (path: string) => boolean {
  const forms = patterns.map((pattern) => new RegExp(`^${globSource(pattern)}(?:/.*)?$`, "s"));
  return (path) => forms.some((form) => form.test(path));
}

/**
 * A pattern as a regular expression with little backtracking. The text between two wildcards is matched at its first
 * occurrence only: a later one would leave less for the rest.
 */
function globSource(pattern: string): string {
  let groups = 0;
  const once = (source: string): string => `(?=(?<g${++groups}>${source}))\\k<g${groups}>`;
  const joined = (parts: readonly string[], any: string): string =>
    parts
      .map((part, i) => (i === 0 ? part : `${any}*?${part}`))
      .map((source, i) => (i < parts.length - 1 ? once(source) : source))
      .join("");
  const literal = (text: string): string => text.replace(/[\\^$.+()[\]{}|]/g, "\\$&").replaceAll("?", "[^/]");
  return joined(
    pattern.split("**").map((piece) => joined(piece.split("*").map(literal), "[^/]")),
    ".",
  );
}

export type ReturnedFile = Pick<SentFile, "path" | "size" | "executable">;

export function encodeHeader({ path, size, executable }: ReturnedFile): Buffer {
  const text = Buffer.from(JSON.stringify({ path, size, ...(executable === true ? { executable } : {}) }));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text]);
}

/** What the reader of returned files does with them. */
interface FileSink {
  begin(file: ReturnedFile): void;
  bytes(part: Uint8Array): void;
  /** The file is complete. `sha256` is its digest at the worker. */
  end(sha256: string): void;
}

const DIGEST_BYTES = 32;

/** Reads records of returned files as bytes arrive. Throws LABORO_BAD_INPUT for anything else. */
export class ReturnedReader {
  readonly #sink: FileSink;
  #buffer: Buffer = Buffer.alloc(0);
  /** Missing bytes of the current file. */
  #left = 0;
  #inFile = false;

  constructor(sink: FileSink) {
    this.#sink = sink;
  }

  /** Whether the bytes so far end with a file. */
  get complete(): boolean {
    return !this.#inFile && this.#buffer.length === 0;
  }

  push(bytes: Uint8Array): void {
    this.#buffer = this.#buffer.length === 0 ? Buffer.from(bytes) : Buffer.concat([this.#buffer, bytes]);
    while (this.#step());
  }

  #step(): boolean {
    if (!this.#inFile) return this.#begin();
    if (this.#left > 0) {
      const part = this.#take(Math.min(this.#left, this.#buffer.length));
      this.#left -= part.length;
      if (part.length > 0) this.#sink.bytes(part);
      return part.length > 0;
    }
    if (this.#buffer.length < DIGEST_BYTES) return false;
    this.#sink.end(this.#take(DIGEST_BYTES).toString("hex"));
    this.#inFile = false;
    return true;
  }

  #begin(): boolean {
    if (this.#buffer.length < 4) return false;
    const length = this.#buffer.readUInt32BE();
    if (length > MAX_HEADER) throw badInput("returned files: a header is too long");
    if (this.#buffer.length < 4 + length) return false;
    const file = readHeader(this.#take(4 + length).subarray(4));
    this.#inFile = true;
    this.#left = file.size;
    this.#sink.begin(file);
    return true;
  }

  #take(length: number): Buffer {
    const part = this.#buffer.subarray(0, length);
    this.#buffer = this.#buffer.subarray(length);
    return part;
  }
}

function readHeader(bytes: Buffer): ReturnedFile {
  let given: unknown;
  try {
    given = JSON.parse(bytes.toString());
  } catch (cause) {
    throw badInput("returned files: a header is not JSON", cause);
  }
  const { path, size, executable } = (given ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof path !== "string" || !Number.isSafeInteger(size) || (size as number) < 0)
    throw badInput("returned files: a header names no path and size");
  return { path: checkedPath(path, "returned files"), size: size as number, executable: executable === true };
}
