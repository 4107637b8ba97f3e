/** Completion for zsh: `_arguments` a verb. */
import type { OptionCompletion, VerbCompletion } from "./describe-verbs.js";

export function zshScript(verbs: readonly VerbCompletion[]): string {
  return `#compdef laboro
# laboro completion for zsh: source <(laboro completion zsh), after compinit
_laboro_list() {
  local -a found
  found=(\${(f)"$(laboro completion --list $1 2>/dev/null)"})
  found=("\${found[@]//:/\\\\:}")
  found=("\${found[@]//$'\\t'/:}")
  _describe "$1" found
}
_laboro() {
  local context state line
  local -a verbs
  verbs=(
${verbs.map(({ name, summary }) => `    '${name}:${summary}'`).join("\n")}
  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  case $words[2] in
${verbs.map(verbCase).join("\n")}
  esac
}
compdef _laboro laboro`;
}

function verbCase({ name, options, words }: VerbCompletion): string {
  const lines = options.flatMap((option) => optionSpecs(option));
  // The verb itself is the first word.
  lines.push("'1: :'", `'2:${wordsSpec(words)}'`, `'*:${words === undefined ? "file:_files" : " :"}'`);
  return `    ${name})\n      _arguments \\\n        ${lines.join(" \\\n        ")}\n      ;;`;
}

function optionSpecs({ flags, description, value }: OptionCompletion): string[] {
  return flags.map((flag) => `'${flag}[${description}]${value === undefined ? "" : `:value:${valueSpec(value)}`}'`);
}

function valueSpec(value: NonNullable<OptionCompletion["value"]>): string {
  if (value === "file") return "_files";
  if (value === "directory") return "_files -/";
  return value === "any" ? "" : `(${value.join(" ")})`;
}

function wordsSpec(words: VerbCompletion["words"]): string {
  if (words === undefined) return "file:_files";
  return typeof words === "string" ? `${words}:_laboro_list ${words}` : `word:(${words.join(" ")})`;
}
