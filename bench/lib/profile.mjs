/** CPU profiles of laboro's processes, and the functions in which they spend their own time. */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A process or thread that did less than its own start is left out. */
const LEAST_BUSY = 300_000;

let folder;

/** Profiles of one topic go to `dir`; nothing is profiled if undefined. */
export function profileInto(dir) {
  folder = dir;
  if (dir !== undefined) mkdirSync(dir, { recursive: true });
}

/** What to give to node so that it writes a profile, one a thread, when it ends. */
export function profileArguments(role) {
  if (folder === undefined) return [];
  return ["--cpu-prof", "--cpu-prof-interval", "500", "--cpu-prof-dir", join(folder, role)];
}

/** One text a profile: the share of its busy time that each function took itself. */
export function summaries(dir, top = 20) {
  return readdirSync(dir, { recursive: true })
    .filter((name) => name.endsWith(".cpuprofile"))
    .map((name) => summary(name, JSON.parse(readFileSync(join(dir, name), "utf8")), top))
    .filter((text) => text !== undefined);
}

function summary(name, { nodes, samples, timeDeltas }, top) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const own = new Map();
  samples.forEach((id, i) => {
    const { functionName, url, lineNumber } = byId.get(id).callFrame;
    const file = url.replace(/^.*\/(dist|node_modules)\//, "").replace(/^file:\/\//, "");
    const key = `${functionName || "(anonymous)"}${file === "" ? "" : ` ${file}:${lineNumber + 1}`}`;
    own.set(key, (own.get(key) ?? 0) + timeDeltas[i]);
  });
  const idle = own.get("(idle)") ?? 0;
  own.delete("(idle)");
  const busy = [...own.values()].reduce((sum, micros) => sum + micros, 0);
  if (busy < LEAST_BUSY) return undefined;
  const lines = [...own]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, top)
    .map(([what, micros]) => `${((100 * micros) / busy).toFixed(1).padStart(6)} %  ${what}`);
  return [`${name}: busy ${(busy / 1e6).toFixed(2)} s, idle ${(idle / 1e6).toFixed(2)} s`, ...lines].join("\n");
}
