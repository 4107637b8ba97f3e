/** How a `.m` script is run: by MATLAB, or by Octave where there is no MATLAB. It is called by name with its folder on the path, so that it runs in the caller's directory. */
import { basename, dirname } from "node:path";
import { quote } from "../model/shell-words.js";
import { DEFAULT_PATH, findCommand } from "./processes/lookup.js";

/** Shell text. The name of `file` is one that MATLAB accepts for a script: letters, digits and `_` before the `.m`. `exit` is the exit code after an error; 0 if absent. */
export function matlabLine(file: string, exit = 0, path: string = process.env.PATH ?? DEFAULT_PATH): string {
  const name = basename(file).replace(/\.m$/, "");
  const folder = dirname(file).replaceAll("'", "''");
  const trace =
    "fprintf('Stack trace available (most recent calls last):\\n'), for i = numel(e.stack):-1:1, " +
    "fprintf('Function ''%s'' at file ''%s'', line %d\\n', e.stack(i).name, e.stack(i).file, e.stack(i).line), end";
  const end = exit === 0 ? "" : `, exit(${exit})`;
  const code = `try, addpath('${folder}'), ${name}, catch e, fprintf('Failed: %s\\n', e.message), ${trace}${end}, end, quit`;
  return `${interpreter(path)} ${quote(code)}`;
}

function interpreter(path: string): string {
  if (findCommand("matlab", path) === undefined && findCommand("octave", path) !== undefined) {
    return "octave --no-gui --quiet --eval";
  }
  // If neither exists the shell reports it, and the script has failed.
  return "matlab -nodisplay -nosplash -nodesktop -singleCompThread -r";
}
