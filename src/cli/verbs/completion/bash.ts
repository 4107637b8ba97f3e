/** Completion for bash: one function, with a case a verb. */
import type { OptionCompletion, VerbCompletion } from "./describe-verbs.js";

export function bashScript(verbs: readonly VerbCompletion[]): string {
  return `# laboro completion for bash: source <(laboro completion bash)
_laboro() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} verb=\${COMP_WORDS[1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(" ")} help --help --version' -- "$word"))
    return
  fi
  case $verb in
${verbs.map(verbCase).join("\n")}
    help) COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(" ")}' -- "$word")) ;;
  esac
}
complete -F _laboro laboro`;
}

function verbCase({ name, options, words }: VerbCompletion): string {
  const flags = options.flatMap((option) => option.flags).join(" ");
  return `    ${name})
      case $before in
${options
  .filter(({ value }) => value !== undefined)
  .map(valueCase)
  .join("\n")}
      esac
      if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W '${flags}' -- "$word"))
      else
        ${wordsLine(words)}
      fi
      ;;`;
}

function valueCase({ flags, value }: OptionCompletion): string {
  const reply = (made: string): string => `        ${flags.join("|")}) COMPREPLY=(${made}); return ;;`;
  if (value === "file") return reply('$(compgen -f -- "$word")');
  if (value === "directory") return reply('$(compgen -d -- "$word")');
  return reply(Array.isArray(value) ? `$(compgen -W '${value.join(" ")}' -- "$word")` : "");
}

function wordsLine(words: VerbCompletion["words"]): string {
  if (words === undefined) return 'COMPREPLY=($(compgen -f -- "$word"))';
  if (typeof words !== "string") return `COMPREPLY=($(compgen -W '${words.join(" ")}' -- "$word"))`;
  // One candidate a line: a worker may have a name with a blank in it.
  return `local IFS=$'\\n'; COMPREPLY=($(compgen -W "$(laboro completion --list ${words} 2>/dev/null | cut -f1)" -- "$word"))`;
}
