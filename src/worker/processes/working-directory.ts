/** The directory of a slot's shell, in which it runs commands itself. */
import { type Stats, statSync } from "node:fs";
import type { Bytes } from "../../model/recipe.js";
import { latin1 } from "../../model/shell-words.js";

/** A directory, by its name and by what has the name: it may have been made again. */
export interface Directory {
  readonly path: string;
  readonly dev: number;
  readonly ino: number;
}

export const UNKNOWN_DIRECTORY: Directory = { path: "", dev: -1, ino: -1 };

/** Where the shell itself runs a command; `enter` where it has to change to it first. */
export interface Place {
  readonly directory: Directory | undefined;
  readonly enter: Bytes | undefined;
}

export function placeAt(dir: Bytes, current: Directory | undefined): Place | undefined {
  const path = latin1(dir, "directory");
  const found = statOf(Buffer.from(path, "latin1"));
  if (found?.isDirectory() !== true) return undefined;
  const same = current?.path === path && current.dev === found.dev && current.ino === found.ino;
  return { directory: { path, dev: found.dev, ino: found.ino }, enter: same ? undefined : dir };
}

function statOf(path: Buffer): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** The root where the agent's own directory was removed. */
export function agentDirectory(): string {
  try {
    return process.cwd();
  } catch {
    return "/";
  }
}
