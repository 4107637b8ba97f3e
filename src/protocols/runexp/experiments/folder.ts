/**
 * A folder of experiments: scripts below `runs/`, results below `outputs/`, and the table of results. Names and paths
 * are text with one character per byte (latin1), because file names need not be UTF-8.
 */
import * as fs from "node:fs";
import { badInput, errnoOf } from "../../../base/errors.js";
import { writeFileAtomically } from "../../../base/files/durable.js";
import { LOCAL_DATA } from "../../../base/files/local-data.js";
import type { Experiment } from "../broker/runner-tasks.js";
import { bytesOf, displayName } from "../messages.js";
import { ResStatusReader, summaryOf } from "../res-text.js";

interface FolderScan {
  readonly experiments: readonly Experiment[];
  /** Which scripts were renamed or ignored, and why. */
  readonly notices: readonly string[];
}

/** All scripts below this folder, ordered by path. */
export function findExperiments(runs: string): FolderScan {
  const paths = [...scriptsBelow(runs, "", [])].sort((a, b) => (a < b ? -1 : 1));
  const notices: string[] = [];
  const usable = paths.filter((path) => {
    const why = skipReason(path);
    if (why !== undefined) notices.push(`${JSON.stringify(displayName(path))} is left out: ${why}`);
    return why === undefined;
  });
  const experiments = assignNames(usable, notices);
  return { experiments: experiments.sort((a, b) => (a.path < b.path ? -1 : 1)), notices };
}

function skipReason(path: string): string | undefined {
  if (path.includes("\n")) return "a name with a line break cannot be sent to a runner";
  if (/(^|\/)\.(sh|m)$/.test(path)) return "it has no name but its extension";
  return undefined;
}

function* scriptsBelow(root: string, below: string, above: readonly string[]): Generator<string> {
  const folder = bytesOf(below === "" ? root : `${root}/${below}`);
  const { dev, ino } = fs.statSync(folder);
  // A link may lead back to a folder above.
  const here = `${dev}.${ino}`;
  if (above.includes(here)) return;
  for (const raw of fs.readdirSync(folder, { encoding: "buffer" })) {
    const name = raw.toString("latin1");
    const path = below === "" ? name : `${below}/${name}`;
    const kind = fileTypeAt(`${root}/${path}`);
    // A broker's data directory, which has scripts too.
    if (name === LOCAL_DATA) continue;
    if (kind === "folder") yield* scriptsBelow(root, path, [...above, here]);
    else if (kind === "file" && /\.(sh|m)$/.test(name)) yield path;
  }
}

function fileTypeAt(path: string): "folder" | "file" | undefined {
  const found = fs.statSync(bytesOf(path), { throwIfNoEntry: false });
  return found?.isDirectory() ? "folder" : found?.isFile() ? "file" : undefined;
}

/**
 * `x.sh` and `x.m` would both be `x`, with one result file. The `.sh` keeps the name; the other becomes `x.m` with the
 * result `x.m.res`, and gets another extension if that is taken too.
 */
function assignNames(paths: readonly string[], notices: string[]): Experiment[] {
  const taken = new Map<string, string>();
  const found: Experiment[] = [];
  const rank = (path: string): number => (path.endsWith(".sh") ? 0 : 1);
  for (const path of [...paths].sort((a, b) => rank(a) - rank(b))) {
    const kind = path.endsWith(".sh") ? ".sh" : ".m";
    const usual = path.slice(0, -kind.length);
    let name = usual;
    while (taken.has(name)) name = `${name}${kind}`;
    if (name !== usual) {
      const other = taken.get(usual) ?? usual;
      notices.push(
        `${displayName(other)} and ${displayName(path)} have one name: the second writes ${displayName(name)}.res`,
      );
    }
    taken.set(name, path);
    found.push({ name, kind, path });
  }
  return found;
}

/** Throws LABORO_BAD_INPUT if it cannot be read. */
export function readScript(runs: string, path: string): Buffer {
  try {
    return fs.readFileSync(bytesOf(`${runs}/${path}`));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw badInput(`the experiment ${displayName(path)} cannot be read: ${why}`, cause);
  }
}

const TABLE = "runexp.am";
/** Bytes of a result that are read at a time. */
const PIECE = 1024 * 1024;

/**
 * How experiments ended, in `outputs/runexp.am`: a line with the name, a line with 0 or 1, no newline at the end. An
 * experiment is done if its `.res` exists and is a success by this table, else by the first line of the `.res`, else by
 * its last line with `RES:`.
 */
export class Aftermath {
  readonly #outputs: string;
  readonly #table = new Map<string, boolean>();
  #changed = false;

  constructor(outputs: string) {
    this.#outputs = outputs;
    const lines = this.#read().split("\n");
    for (let at = 0; at + 1 < lines.length; at += 2) {
      const [name = "", value] = [lines[at], lines[at + 1]];
      if (value !== "0" && value !== "1") {
        throw badInput(`${TABLE}, line ${at + 2}: expected 0 or 1; remove the file to continue`);
      }
      this.#table.set(name, value === "1");
    }
  }

  #read(): string {
    try {
      return fs.readFileSync(this.#path, "latin1");
    } catch (cause) {
      if (errnoOf(cause) === "ENOENT") return "";
      throw cause;
    }
  }

  get #path(): Buffer {
    return bytesOf(`${this.#outputs}/${TABLE}`);
  }

  set(name: string, success: boolean): void {
    this.#table.set(name, success);
    this.#changed = true;
  }

  /** The experiment runs again, so its earlier result does not count. */
  forget(name: string): void {
    if (this.#table.delete(name)) this.#changed = true;
  }

  save(): void {
    if (!this.#changed) return;
    const text = [...this.#table].map(([name, success]) => `${name}\n${success ? 1 : 0}`).join("\n");
    writeFileAtomically(this.#path.toString(), Buffer.from(text, "latin1"), 0o666);
    this.#changed = false;
  }

  isDone(name: string): boolean {
    const result = bytesOf(`${this.#outputs}/${name}.res`);
    if (!fs.statSync(result, { throwIfNoEntry: false })?.isFile()) return false;
    return this.#table.get(name) ?? succeeded(result);
  }
}

function succeeded(result: Buffer): boolean {
  const fd = fs.openSync(result, "r");
  try {
    const piece = Buffer.alloc(PIECE);
    const reader = new ResStatusReader();
    for (let at = 0; ; ) {
      const length = fs.readSync(fd, piece, 0, PIECE, at);
      const bytes = piece.subarray(0, length);
      const summary = at === 0 ? summaryOf(bytes.toString("latin1", 0, 100)) : undefined;
      if (summary !== undefined) return summary === "success";
      if (length === 0) return reader.status === "success";
      reader.push(bytes);
      at += length;
    }
  } finally {
    fs.closeSync(fd);
  }
}
