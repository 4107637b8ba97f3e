/**
 * How a `.m` job is run: by MATLAB, or by Octave where there is no MATLAB, through a small bash script, as both write much to standard
 * error that belongs to the result. The job is called by name with its folder on the path, so that it runs in the runner's directory.
 */
import { basename, dirname } from "node:path";
import { DEFAULT_PATH, findCommand } from "../../../worker/processes/lookup.js";
import { quote } from "../../../worker/processes/script.js";

/** Shell text. `file` is the job, `runexp_….m`. */
export function matlabProxy(file: string, path: string = process.env.PATH ?? DEFAULT_PATH): string {
  const name = basename(file).replace(/\.m$/, "");
  const folder = dirname(file).replaceAll("'", "''");
  const trace = "for i = numel(e.stack):-1:1, fprintf('  in %s, line %d\\n', e.stack(i).name, e.stack(i).line), end";
  const code = `try, addpath('${folder}'), ${name}, catch e, fprintf('Failed: %s\\n', e.message), ${trace}, end, quit`;
  return `#!/bin/bash\nexec 2>&1 </dev/null\n${interpreter(path)} ${quote(code)}\n`;
}

function interpreter(path: string): string {
  if (findCommand("matlab", path) === undefined && findCommand("octave", path) !== undefined) {
    return "octave --no-gui --quiet --eval";
  }
  // Where there is neither, bash says so, and the job has failed.
  return "matlab -nodisplay -nosplash -nodesktop -singleCompThread -r";
}
