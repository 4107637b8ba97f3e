import { accessSync, constants, statSync } from "node:fs";
import { resolve } from "node:path";

/** Text in latin1, as all that goes to a shell: one character is one byte. */
type Latin1 = string;

/** Where there is no PATH. */
export const DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin";

/** The file that a command name stands for, as execvp(3) would find it; undefined where there is none to execute. */
export function findCommand(name: Latin1, path: Latin1, dir: Latin1 = "."): Latin1 | undefined {
  if (name === "") return undefined;
  const candidates = name.includes("/")
    ? [name]
    : path.split(":").map((folder) => `${folder === "" ? "." : folder}/${name}`);
  return candidates.find((file) => isExecutable(Buffer.from(resolve(dir, file), "latin1")));
}

function isExecutable(file: Buffer): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
