/**
 * Finds the placeholders in a line for /bin/sh and their quoting. The line is parsed as dash and bash parse it: quotes,
 * command substitution, comments, here-documents, `case` patterns. Constructs that the shells parse differently are
 * refused, and so is every place where the value of a variable would change or could be evaluated as code.
 *
 * The line is latin1 text: one character per byte.
 */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: ${ is the shell's
import { CommandList } from "./shell-command-list.js";

/** How the shell quotes the text around the placeholder. */
export type Quoting = "bare" | "single" | "double" | "heredoc";

export interface ShellPlaceholder {
  readonly at: number;
  readonly text: string;
  readonly quoting: Quoting;
  /** bash evaluates this place as arithmetic, where a text can run commands. Only integers are safe. */
  readonly numeric: boolean;
  /** A backslash before it would escape the `$` of a variable. */
  readonly escaped: boolean;
  /** Why no placeholder may be here. */
  readonly refusal?: string;
}

const REFUSAL = {
  backquotes: 'inside backquotes; write $(…), or use "$LABORO_ENTRY"',
  parameter: "inside ${…}; use ${LABORO_ENTRY…}, or a variable that is set before: v={}",
  quotedHeredoc: 'in a here-document with a quoted delimiter; remove the quotes, or use "$LABORO_ENTRY" elsewhere',
  ansiC: "inside $'…', which not every /bin/sh knows; use \"$LABORO_ENTRY\"",
  localized: 'inside $"…", which not every /bin/sh knows; use "$LABORO_ENTRY"',
} as const;

/** Most often the mistake is an apostrophe, or an end that was forgotten: "' without its end". */
const unclear = (why: string): string =>
  why.includes(" without ")
    ? `in a line that is not complete: ${why}`
    : `in a line that not every shell reads in the same way (${why}); use "$LABORO_ENTRY" instead`;

/** `pattern` is sticky and matches one placeholder. */
export function findPlaceholders(line: string, pattern: RegExp): readonly ShellPlaceholder[] {
  const reader = new ShellLineReader(line, pattern);
  reader.commands(undefined);
  const { found, doubt } = reader;
  return doubt === undefined ? found : found.map((one) => ({ ...one, refusal: unclear(doubt) }));
}

interface HereDocument {
  readonly delimiter: string;
  readonly quoted: boolean;
  readonly stripTabs: boolean;
}

/** Quoted, unquoted or partly quoted. */
const DELIMITER = /[ \t]*((?:'[^'\n]*'|"[^"\n\\$`]*"|\\[^\n]|[^ \t\n;&|<>()'"\\$`])*)/y;
const SUBSCRIPT = /^\w*\[[^\]]*$/;

class ShellLineReader {
  readonly found: ShellPlaceholder[] = [];
  /** Why the line cannot be parsed reliably. */
  doubt: string | undefined;
  readonly #line: string;
  readonly #pattern: RegExp;
  #at = 0;
  #wordStart: number | undefined;
  /** Enclosing constructs that evaluate arithmetic. */
  #numeric = 0;
  #refusal: string | undefined;
  /** Here-documents of this list whose bodies come after the next line break, and how many the lists around it have. */
  #pending: HereDocument[] = [];
  #outerPending = 0;

  constructor(line: string, pattern: RegExp) {
    this.#line = line;
    this.#pattern = pattern;
  }

  /** A list of commands, up to and including `closer`, or to the end of the line. */
  commands(closer: ")" | undefined): void {
    const outerWord = this.#wordStart;
    const list = new CommandList(this, () => this.#line.slice(this.#wordStart, this.#at).replaceAll("\\\n", ""));
    const outerPending = this.#pending;
    this.#outerPending += outerPending.length;
    this.#pending = [];
    const endWord = (): void => {
      if (this.#wordStart !== undefined) list.endWord();
      this.#wordStart = undefined;
    };
    this.#wordStart = undefined;
    for (let end = false; !end; ) {
      const character = this.#line[this.#at];
      switch (character) {
        case undefined:
          endWord();
          if (closer !== undefined) this.refuseLine("$( without )");
          list.end();
          end = true;
          break;
        case " ":
        case "\t":
          endWord();
          this.#at++;
          break;
        case "\n":
          endWord();
          this.#at++;
          list.separator();
          if (this.#outerPending > 0) this.refuseLine("a line break between << and its here-document");
          for (const one of this.#pending.splice(0)) this.#hereDocument(one, closer !== undefined);
          break;
        case ";":
        case "&":
        case "|": {
          endWord();
          const [operator = character] = /^(?:;;&|;;|;&|&&|\|\||\|&|&>>?)/.exec(this.#ahead(3)) ?? [];
          this.#at += operator.length;
          if (operator.startsWith("&>")) list.redirection();
          else if (operator.length > 1 && operator[0] === ";") list.endOfCaseBranch();
          else list.separator();
          break;
        }
        case "<":
        case ">":
          endWord();
          this.#redirection(list);
          break;
        case "(": {
          const before = this.#wordStart === undefined ? "" : this.#line[this.#at - 1];
          endWord();
          this.#at++;
          list.open(before === "=", /[<>]/.test(this.#line[this.#at - 2] ?? ""), this.#line[this.#at] === "(");
          break;
        }
        case ")":
          endWord();
          this.#at++;
          end = list.close(closer);
          break;
        case "#":
          if (this.#wordStart === undefined) {
            if (list.inArithmetic) this.refuseLine("# within ((");
            const newline = this.#line.indexOf("\n", this.#at);
            this.#at = newline < 0 ? this.#line.length : newline;
          } else this.#at++;
          break;
        default:
          if (character === "\\" && this.#line[this.#at + 1] === "\n") this.#continuation();
          else {
            this.#wordStart ??= this.#at;
            this.#wordPart(character);
          }
      }
    }
    if (this.#pending.length > 0 && closer !== undefined) this.refuseLine("$(… <<) without its here-document");
    this.#pending = outerPending;
    this.#outerPending -= outerPending.length;
    this.#wordStart = outerWord;
  }

  raiseNumeric(by: 1 | -1): void {
    this.#numeric += by;
  }

  /** A part of a word outside of quotes. */
  #wordPart(character: string): void {
    switch (character) {
      case "\\":
        this.#at += 2;
        break;
      case "'":
        this.#singleQuoted();
        break;
      case '"':
        this.#doubleQuoted();
        break;
      case "`":
        this.#backquoted();
        break;
      case "$":
        this.#dollar(false);
        break;
      default:
        if (!this.#placeholder("bare")) this.#at++;
    }
  }

  #placeholder(quoting: Quoting, escaped = false): boolean {
    this.#pattern.lastIndex = this.#at;
    const text = this.#line[this.#at] === "{" ? this.#pattern.exec(this.#line)?.[0] : undefined;
    if (text === undefined) return false;
    this.#add(text, quoting, escaped);
    this.#at += text.length;
    return true;
  }

  #add(text: string, quoting: Quoting, escaped = false): void {
    this.found.push({
      at: this.#at,
      text,
      quoting,
      numeric: this.#numeric > 0 || this.#inSubscript(),
      escaped,
      ...(this.#refusal === undefined ? {} : { refusal: this.#refusal }),
    });
  }

  /** In `name[…`: bash evaluates the subscript of an array. */
  #inSubscript(): boolean {
    return this.#wordStart !== undefined && SUBSCRIPT.test(this.#line.slice(this.#wordStart, this.#at));
  }

  #refusing(refusal: string, read: () => void): void {
    const before = this.#refusal;
    this.#refusal ??= refusal;
    read();
    this.#refusal = before;
  }

  #singleQuoted(): void {
    for (this.#at++; this.#line[this.#at] !== "'"; ) {
      if (this.#atEnd("' without its end")) return;
      if (!this.#placeholder("single")) this.#at++;
    }
    this.#at++;
  }

  #doubleQuoted(): void {
    this.#at++;
    while (this.#line[this.#at] !== '"') {
      if (this.#atEnd('" without its end')) return;
      this.#expandable("double", '$`"\\\n');
    }
    this.#at++;
  }

  /** One step in text in which `$` and backquotes count, and a backslash only before one of `escapes`. */
  #expandable(quoting: "double" | "heredoc", escapes: string): void {
    const character = this.#line[this.#at];
    const next = this.#line[this.#at + 1] ?? "";
    if (character === "\\" && next === "\n") this.#continuation();
    else if (character === "\\" && next !== "" && escapes.includes(next)) this.#at += 2;
    else if (character === "\\") {
      this.#at++;
      this.#placeholder(quoting, true);
    } else if (character === "$") this.#dollar(true);
    else if (character === "`") this.#backquoted();
    else if (!this.#placeholder(quoting)) this.#at++;
  }

  #continuation(): void {
    if (/[$<>(;&|]/.test(this.#line[this.#at - 1] ?? "")) this.refuseLine("a line continued within an operator");
    this.#at += 2;
  }

  #backquoted(): void {
    this.#refusing(REFUSAL.backquotes, () => {
      this.#at++;
      while (this.#line[this.#at] !== "`") {
        if (this.#atEnd("` without its end")) return;
        if (this.#line[this.#at] === "\\") this.#at += 2;
        else if (!this.#placeholder("bare")) this.#at++;
      }
      this.#at++;
    });
  }

  #dollar(quoted: boolean): void {
    const next = this.#line[this.#at + 1] ?? "";
    if (next === "(") this.#substitution();
    else if (next === "{") this.#parameter(quoted);
    else if (next === "[") {
      this.refuseLine("$[");
      this.#at += 2;
    } else if (next === "'" && !quoted) {
      this.#at++;
      this.#refusing(REFUSAL.ansiC, () => this.#singleQuoted());
      if (this.#line[this.#at - 2] === "\\") this.refuseLine("\\' within $'…'");
    } else if (next === '"' && !quoted) {
      this.#at++;
      this.#refusing(REFUSAL.localized, () => this.#doubleQuoted());
    } else this.#at += /[$#?!@*0-9-]/.test(next) ? 2 : 1;
  }

  #substitution(): void {
    const numeric = this.#line[this.#at + 2] === "(" || this.#inSubscript();
    if (numeric) this.#numeric++;
    if (this.#line[this.#at + 2] === "(") this.#arithmetic();
    else {
      this.#at += 2;
      this.commands(")");
    }
    if (numeric) this.#numeric--;
  }

  #arithmetic(): void {
    let depth = 0;
    for (this.#at += 3; ; ) {
      if (this.#atEnd("$(( without ))")) return;
      const character = this.#line[this.#at];
      if (character === ")" && depth === 0) {
        if (this.#line[this.#at + 1] !== ")") this.refuseLine("$(( without ))");
        this.#at += 2;
        return;
      }
      if (character === "(") depth++;
      if (character === ")") depth--;
      if (character === "'" || character === '"') this.refuseLine("quotes within $((");
      this.#expandable("double", "$`\\");
    }
  }

  #parameter(quoted: boolean): void {
    this.#at++;
    this.#pattern.lastIndex = this.#at;
    const [alike = ""] = this.#pattern.exec(this.#line) ?? [];
    // ${1} and ${#} are the shell's own.
    if (/^\{(\d+|#)\}$/.test(alike)) {
      this.#at += alike.length;
      return;
    }
    this.#refusing(REFUSAL.parameter, () => {
      if (this.#placeholder("bare")) return;
      this.#at++;
      if (/[ \t\n|]/.test(this.#line[this.#at] ?? "")) this.refuseLine("${ with a command");
      while (this.#line[this.#at] !== "}") {
        if (this.#atEnd("${ without }")) return;
        const character = this.#line[this.#at] ?? "";
        if (quoted && (character === "'" || character === '"')) this.refuseLine("quotes within ${ within quotes");
        if (quoted && character !== "\\") this.#expandable("double", "");
        else this.#wordPart(character);
      }
      this.#at++;
    });
  }

  #redirection(list: CommandList): void {
    const [operator = ""] = /^(?:<<<|<<-|<<|<>|<&|<|>>|>&|>\||>)/.exec(this.#ahead(3)) ?? [];
    this.#at += operator.length;
    if (operator === "<<" || operator === "<<-") {
      if (list.inArithmetic) this.refuseLine("<< within ((");
      this.#pending.push(this.#delimiter(operator === "<<-"));
    }
    list.redirection();
  }

  #delimiter(stripTabs: boolean): HereDocument {
    DELIMITER.lastIndex = this.#at;
    const [whole = "", word = ""] = DELIMITER.exec(this.#line) ?? [];
    this.#at += whole.length;
    // Also if the same word continues with ` $ or a quote with an escape in it.
    if (word === "" || word.includes("{") || !/^[ \t\n;&|<>()]?$/.test(this.#ahead(1)))
      this.refuseLine("the delimiter of a here-document");
    const delimiter = word.replace(/'([^']*)'|"([^"]*)"|\\(.)/g, "$1$2$3");
    return { delimiter, quoted: /['"\\]/.test(word), stripTabs };
  }

  #hereDocument(document: HereDocument, nested: boolean): void {
    const { quoted } = document;
    const end = this.#endOfHereDocument(document, nested);
    const body = (): void => {
      while (this.#at < end && this.#at < this.#line.length) {
        if (!quoted) this.#expandable("heredoc", "$`\\");
        else if (!this.#placeholder("heredoc")) this.#at++;
      }
    };
    if (quoted) this.#refusing(REFUSAL.quotedHeredoc, body);
    else body();
    if (this.#at > end) this.refuseLine("a here-document that ends within $(");
    const newline = this.#line.indexOf("\n", end);
    this.#at = newline < 0 ? this.#line.length : newline + 1;
  }

  /** Where the line with the delimiter begins. */
  #endOfHereDocument({ delimiter, quoted, stripTabs }: HereDocument, nested: boolean): number {
    let joined = false;
    for (let from = this.#at; from < this.#line.length; ) {
      const newline = this.#line.indexOf("\n", from);
      const raw = this.#line.slice(from, newline < 0 ? undefined : newline);
      const text = stripTabs ? raw.replace(/^\t+/, "") : raw;
      if (text === delimiter && !joined) return from;
      if (nested && text.startsWith(`${delimiter})`)) break;
      joined = !quoted && (/\\*$/.exec(raw)?.[0].length ?? 0) % 2 === 1;
      from += raw.length + 1;
    }
    if (nested) this.refuseLine("a here-document without its end");
    return this.#line.length;
  }

  #ahead(length: number): string {
    return this.#line.slice(this.#at, this.#at + length);
  }

  /** Returns true at the end of the line, where a construct is still open. */
  #atEnd(open: string): boolean {
    if (this.#at < this.#line.length) return false;
    this.refuseLine(open);
    return true;
  }

  refuseLine(why: string): void {
    this.doubt ??= why;
  }
}
