/**
 * Quotes bytes as words of shell text.
 *
 * Tracks reserved words in a list of shell commands, to find out what a `)` closes. Used by shell-line.ts.
 */
import { badInput } from "../base/errors.js";
import type { Bytes } from "./recipe.js";

/** Variables that some shell reserves (read-only, or changed by the shell itself). `env` sets them instead. */
export const SHELL_RESERVED =
  /^(_|UID|EUID|PPID|GROUPS|IFS|LINENO|OPTIND|RANDOM|SRANDOM|SECONDS|SHLVL|SHELLOPTS|BASH.*|DIRSTACK|EPOCH.*|FUNCNAME|HISTCMD)$/;

const PLAIN = /^[ -~\n\t]*$/;

/** One word of shell text that stands for exactly these bytes. */
export function quote(bytes: Bytes, what = "argument"): string {
  return `'${latin1(bytes, what).replaceAll("'", "'\\''")}'`;
}

export function latin1(bytes: Bytes, what: string): string {
  if (typeof bytes === "string" && PLAIN.test(bytes)) return bytes;
  const text = (
    typeof bytes === "string" ? Buffer.from(bytes) : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  ).toString("latin1");
  if (text.includes("\0")) throw badInput(`the ${what} contains a NUL byte`);
  return text;
}

/** Callbacks to the reader of the line. */
interface ListReader {
  /** The line cannot be parsed reliably. */
  refuseLine(why: string): void;
  /** Arithmetic begins or ends. */
  raiseNumeric(by: 1 | -1): void;
}

/** Something open in a list of commands. `(` has the position after its end; `case` the part it is in. */
type Open =
  | { readonly kind: "("; readonly arithmetic: boolean; readonly array: boolean; readonly commandAfter: boolean }
  | { readonly kind: "case"; part: "word" | "in" | "pattern" | "body"; patternBegun: boolean };

/** After these a command begins. */
const OPENERS = new Set(["if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "coproc"]);
const CLOSERS = new Set(["fi", "done", "}"]);
/** Which words are reserved, and what a `)` closes. */
export class CommandList {
  readonly #reader: ListReader;
  readonly #word: () => string;
  readonly #open: Open[] = [];
  /** The next word may be a reserved one. */
  #atCommand = true;
  #afterRedirection = false;
  #afterTime = false;
  #for: "" | "name" | "in" = "";
  #functionName = false;
  #inTest = false;

  constructor(reader: ListReader, word: () => string) {
    this.#reader = reader;
    this.#word = word;
  }

  get inArithmetic(): boolean {
    return this.#open.some((one) => one.kind === "(" && one.arithmetic);
  }

  endWord(): void {
    const word = this.#word();
    const top = this.#open.at(-1);
    if (this.#afterRedirection) this.#afterRedirection = false;
    else if (top?.kind === "case" && top.part !== "body") this.#caseWord(word, top);
    else if (this.#inTest) this.#testWord(word);
    else if (this.#functionName) {
      this.#functionName = false;
      this.#atCommand = true;
    } else if (this.#for !== "") {
      this.#atCommand = this.#for === "in" && word === "do";
      this.#for = this.#for === "name" ? "in" : "";
    } else if (this.#atCommand && !(top?.kind === "(" && top.array)) this.#commandWord(word, top);
  }

  #caseWord(word: string, top: Extract<Open, { kind: "case" }>): void {
    if (top.part === "word") top.part = "in";
    else if (top.part === "in") {
      if (word !== "in") this.#reader.refuseLine("case without in");
      top.part = "pattern";
    } else if (word === "esac" && !top.patternBegun) {
      this.#open.pop();
      this.#atCommand = true;
    } else {
      if (word === "esac") this.#reader.refuseLine("esac as a pattern");
      top.patternBegun = true;
    }
  }

  #testWord(word: string): void {
    if (word !== "]]") return;
    this.#inTest = false;
    this.#reader.raiseNumeric(-1);
  }

  #commandWord(word: string, top: Open | undefined): void {
    const optionOfTime = this.#afterTime && word.startsWith("-");
    this.#afterTime = word === "time" || optionOfTime;
    this.#atCommand = optionOfTime || OPENERS.has(word) || CLOSERS.has(word);
    if (word === "case") this.#open.push({ kind: "case", part: "word", patternBegun: false });
    else if (word === "for" || word === "select") this.#for = "name";
    else if (word === "function") this.#functionName = true;
    else if (word === "esac") {
      if (top?.kind === "case") this.#open.pop();
      else this.#reader.refuseLine("esac without case");
      this.#atCommand = true;
    } else if (word === "[[") {
      this.#inTest = true;
      this.#reader.raiseNumeric(1);
    }
  }

  /** `;` `&` `|` or the end of a line. */
  separator(): void {
    this.#atCommand = true;
    this.#afterRedirection = false;
    this.#for = "";
  }

  endOfCaseBranch(): void {
    const top = this.#open.at(-1);
    if (top?.kind === "case") {
      top.part = "pattern";
      top.patternBegun = false;
    } else this.#reader.refuseLine(";; without case");
  }

  redirection(): void {
    this.#atCommand = false;
    this.#afterRedirection = true;
  }

  /** `(`: after `=` an array, after `<` or `>` a process substitution, before another one arithmetic in bash. */
  open(array: boolean, process: boolean, double: boolean): void {
    const top = this.#open.at(-1);
    this.#afterRedirection = false;
    // A pattern may begin with (.
    if (top?.kind === "case" && top.part === "pattern" && !top.patternBegun) {
      top.patternBegun = true;
      return;
    }
    const isPlain = !array && !process;
    const arithmetic = double && isPlain;
    this.#open.push({ kind: "(", arithmetic, array, commandAfter: isPlain });
    if (arithmetic) this.#reader.raiseNumeric(1);
    this.#atCommand = true;
    this.#for = "";
  }

  /** Whether this is the end of the list. */
  close(closer: ")" | undefined): boolean {
    const top = this.#open.at(-1);
    this.#afterRedirection = false;
    this.#atCommand = true;
    if (top?.kind === "case") {
      if (top.part === "pattern") top.part = "body";
      else this.#reader.refuseLine("case without esac");
      return false;
    }
    if (top === undefined) {
      if (closer === undefined) this.#reader.refuseLine(") without (");
      else this.end();
      return closer !== undefined;
    }
    this.#open.pop();
    if (top.arithmetic) this.#reader.raiseNumeric(-1);
    this.#atCommand = top.commandAfter;
    return false;
  }

  end(): void {
    if (this.#open.length > 0) this.#reader.refuseLine("( or case without its end");
    if (this.#inTest) this.#reader.refuseLine("[[ without ]]");
  }
}
