/**
 * Output of tasks in files at the worker. A shell redirects it and then becomes the command, so it works at workers of
 * every protocol. What goes to a file does not go to the broker.
 */
import { expandWords, type TaskValues } from "./placeholders.js";
import type { Bytes, OutputFiles } from "./recipe.js";

/** Creates the folder. An earlier attempt's file is kept beside the new one: `FILE~1` for the first. */
const PREPARE =
  `case $to in ?*/*) mkdir -p -- "\${to%/*}" || exit;; esac; ` +
  `if [ "\${LABORO_ATTEMPT:-1}" -gt 1 ] && [ -f "$to" ]; then ` +
  `mv -f -- "$to" "$to~$(expr "$LABORO_ATTEMPT" - 1)" || exit; fi`;

interface AttemptValues extends TaskValues {
  readonly job: number;
  readonly attempt: number;
}

/** The words before the command of a task. Its paths may also contain `{job}` and `{attempt}`. */
export function redirection(files: OutputFiles, values: AttemptValues): readonly Bytes[] {
  const [out, err] = [files.output ?? files.stdout, files.output ?? files.stderr];
  if (out === undefined && err === undefined) return [];
  const names = [...(out === undefined ? [] : ['"$out"']), ...(err === undefined || err === out ? [] : ['"$err"'])];
  const to = [out === undefined ? "" : '> "$out"', err === undefined ? "" : err === out ? "2>&1" : '2> "$err"'];
  const line = `out=$1 err=$2; shift 2; for to in ${names.join(" ")}; do ${PREPARE}; done; exec "$@" ${to.join(" ")}`;
  return ["/bin/sh", "-c", line, "sh", expandPath(out, values), expandPath(err, values)];
}

/** An entry of several values is one part of a path. */
function expandPath(path = "", { job, attempt, ...values }: AttemptValues): Bytes {
  const numbered = path.replaceAll("{job}", String(job)).replaceAll("{attempt}", String(attempt));
  return expandWords([numbered], { ...values, several: values.several && "joined" })[0] ?? "";
}
