/**
 * A folder of experiments: scripts below `runs/`, results below `outputs/`. Names and paths here are bytes, with one character a byte
 * (latin1), as file names need not be UTF-8.
 */
import * as fs from "node:fs";
import { badInput } from "../../../base/errors.js";
import { LOCAL_DATA } from "../../../base/files/local-data.js";
import type { Experiment } from "../broker/experiments.js";
import { bytesOf, displayName } from "../messages.js";

export interface FolderScan {
  readonly experiments: readonly Experiment[];
  /** For a person: what was named otherwise, or left out, and why. */
  readonly notices: readonly string[];
}

/** All scripts below this folder, in the order of their paths. */
export function findExperiments(runs: string): FolderScan {
  const paths = [...scriptsBelow(runs, "", [])].sort((a, b) => (a < b ? -1 : 1));
  const notices: string[] = [];
  const usable = paths.filter((path) => {
    const why = skipReason(path);
    if (why !== undefined) notices.push(`${JSON.stringify(displayName(path))} is left out: ${why}`);
    return why === undefined;
  });
  const experiments = assignNames(usable, notices);
  return { experiments: experiments.sort((a, b) => (a.path < b.path ? -1 : 1)), notices };
}

/** Why no runner could be sent it. */
function skipReason(path: string): string | undefined {
  if (path.includes("\n")) return "a name with a line break cannot be sent to a runner";
  if (/(^|\/)\.(sh|m)$/.test(path)) return "it has no name but its extension";
  return undefined;
}

function* scriptsBelow(root: string, below: string, above: readonly string[]): Generator<string> {
  const folder = bytesOf(below === "" ? root : `${root}/${below}`);
  const { dev, ino } = fs.statSync(folder);
  // A link may lead back to where it lies.
  const here = `${dev}.${ino}`;
  if (above.includes(here)) return;
  for (const raw of fs.readdirSync(folder, { encoding: "buffer" })) {
    const name = raw.toString("latin1");
    const path = below === "" ? name : `${below}/${name}`;
    const kind = fileTypeAt(`${root}/${path}`);
    // The data of a broker, which has scripts of its own.
    if (name === LOCAL_DATA) continue;
    if (kind === "folder") yield* scriptsBelow(root, path, [...above, here]);
    else if (kind === "file" && /\.(sh|m)$/.test(name)) yield path;
  }
}

function fileTypeAt(path: string): "folder" | "file" | undefined {
  const found = fs.statSync(bytesOf(path), { throwIfNoEntry: false });
  return found?.isDirectory() ? "folder" : found?.isFile() ? "file" : undefined;
}

/**
 * `x.sh` and `x.m` would both be `x`, and their results one file. The `.sh` keeps the name; the other keeps its extension, as `x.m` with
 * the result `x.m.res`, and one more for each time that this is taken too.
 */
function assignNames(paths: readonly string[], notices: string[]): Experiment[] {
  const taken = new Map<string, string>();
  const found: Experiment[] = [];
  const rank = (path: string): number => (path.endsWith(".sh") ? 0 : 1);
  for (const path of [...paths].sort((a, b) => rank(a) - rank(b))) {
    const kind = path.endsWith(".sh") ? ".sh" : ".m";
    const usual = path.slice(0, -kind.length);
    let name = usual;
    while (taken.has(name)) name = `${name}${kind}`;
    if (name !== usual) {
      const other = taken.get(usual) ?? usual;
      notices.push(
        `${displayName(other)} and ${displayName(path)} have one name: the second writes ${displayName(name)}.res`,
      );
    }
    taken.set(name, path);
    found.push({ name, kind, path });
  }
  return found;
}

/** Throws LABORO_BAD_INPUT where it cannot be read any more. */
export function readScript(runs: string, path: string): Buffer {
  try {
    return fs.readFileSync(bytesOf(`${runs}/${path}`));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw badInput(`the experiment ${displayName(path)} cannot be read: ${why}`, cause);
  }
}
