/** Accepts unambiguous prefixes of long options, as the original programs do. */
import { Command } from "commander";

export class AbbreviatingCommand extends Command {
  readonly #synonyms = new Map<string, string>();

  /** Another word for a long option, which the help does not show. */
  synonym(word: string, option: string): this {
    this.#synonyms.set(word, option);
    return this;
  }

  override parseOptions(args: string[]): ReturnType<Command["parseOptions"]> {
    const end = args.indexOf("--");
    const written = end < 0 ? args : args.slice(0, end);
    return super.parseOptions([...written.map((word) => this.#complete(word)), ...args.slice(written.length)]);
  }

  /** The full option; the word itself if it is complete, unknown or ambiguous. */
  #complete(word: string): string {
    const [, name, value = ""] = /^(--[^=]+)(=.*)?$/s.exec(word) ?? [];
    if (name === undefined) return word;
    const words = new Map<string, string>(this.#synonyms);
    for (const { long } of this.options) if (long != null) words.set(long, long);
    const fits = words.has(name) ? [name] : [...words.keys()].filter((long) => long.startsWith(name));
    const meant = new Set(fits.map((long) => words.get(long)));
    const [only] = meant;
    return meant.size === 1 && only !== undefined ? `${only}${value}` : word;
  }
}
