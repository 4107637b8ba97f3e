/**
 * How experiments have ended, in `outputs/runexp.am`: a line with the name, a line with 0 or 1, and no newline at the end. And the rule by
 * which one is done: its `.res` must be there; then the table decides; else the first line of the `.res`; else the last line of it
 * with `RES:`.
 */
import * as fs from "node:fs";
import { badInput, errnoOf } from "../../../base/errors.js";
import { writeFileAtomically } from "../../../base/files/durable.js";
import { bytesOf } from "../messages.js";
import { ResStatusReader, summaryOf } from "../res-text.js";

const FILE = "runexp.am";
/** Bytes of a result that are read at a time. */
const PIECE = 1024 * 1024;

export class Aftermath {
  readonly #outputs: string;
  readonly #table = new Map<string, boolean>();
  #changed = false;

  /** `outputs` is a path of bytes. */
  constructor(outputs: string) {
    this.#outputs = outputs;
    const lines = this.#read().split("\n");
    for (let at = 0; at + 1 < lines.length; at += 2) {
      const [name = "", value] = [lines[at], lines[at + 1]];
      if (value !== "0" && value !== "1") {
        throw badInput(`${FILE}, line ${at + 2}: expected 0 or 1; remove the file to go on`);
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
    return bytesOf(`${this.#outputs}/${FILE}`);
  }

  set(name: string, success: boolean): void {
    this.#table.set(name, success);
    this.#changed = true;
  }

  /** It is about to run: from now on its result alone decides. */
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
