import { describe, expect, it } from "vitest";
import { AbbreviatingCommand } from "../../src/cli/lib/option-parsers.js";

function parsed(...words: string[]): { readonly options: object; readonly args: readonly string[] } {
  const command = new AbbreviatingCommand("x")
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .argument("[words...]")
    .option("-r, --runs <path>")
    .option("--random")
    .option("--print")
    .option("--progress")
    .synonym("--print-jobs", "--print")
    .action(() => {});
  command.parse(words, { from: "user" });
  return { options: command.opts(), args: command.args };
}

describe("an abbreviated option", () => {
  it("is the one that it begins, with its value", () => {
    expect(parsed("--ru", "a")).toMatchObject({ options: { runs: "a" } });
    expect(parsed("--run=a b")).toMatchObject({ options: { runs: "a b" } });
    expect(parsed("--prin", "--prog")).toMatchObject({ options: { print: true, progress: true } });
    expect(parsed("--print-jobs")).toMatchObject({ options: { print: true } });
    expect(parsed("--print-j")).toMatchObject({ options: { print: true } });
  });

  it("is refused where it may be two", () => {
    expect(() => parsed("--r")).toThrow(/unknown option '--r'/);
    expect(() => parsed("--pr")).toThrow(/unknown option '--pr'/);
  });

  it("is left alone behind --", () => {
    expect(parsed("--", "--ru")).toEqual({ options: {}, args: ["--ru"] });
  });
});
