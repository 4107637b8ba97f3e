/** Completion for fish: one line an option. */
import type { OptionCompletion, VerbCompletion } from "./describe-verbs.js";

export function fishScript(verbs: readonly VerbCompletion[]): string {
  const lines = [
    "# laboro completion for fish: laboro completion fish > ~/.config/fish/completions/laboro.fish",
    "complete -c laboro -e",
    ...verbs.map(({ name, summary }) => `complete -c laboro -f -n __fish_use_subcommand -a ${name} -d '${summary}'`),
  ];
  for (const { name, options, words } of verbs) {
    const seen = `-n '__fish_seen_subcommand_from ${name}'`;
    for (const option of options) lines.push(`complete -c laboro ${seen} ${optionWords(option)}`);
    if (typeof words === "string")
      lines.push(`complete -c laboro -f ${seen} -a '(laboro completion --list ${words} 2>/dev/null)'`);
    else if (words !== undefined) lines.push(`complete -c laboro -f ${seen} -a '${words.join(" ")}'`);
  }
  return lines.join("\n");
}

function optionWords({ flags, description, value }: OptionCompletion): string {
  const names = flags.map((flag) => (flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
  return [...names, `-d '${description}'`, valueWords(value)].filter((word) => word !== "").join(" ");
}

function valueWords(value: OptionCompletion["value"]): string {
  if (value === undefined) return "";
  if (value === "file") return "-r -F";
  if (value === "directory") return "-x -a '(__fish_complete_directories)'";
  return value === "any" ? "-x" : `-x -a '${value.join(" ")}'`;
}
