/** CPU profiles of laboro's processes, and the functions in which they spend their own time. */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

let folder;

/** Profiles of one topic go to `dir`; nothing is profiled if undefined. */
export function profileInto(dir) {
  folder = dir;
  if (dir !== undefined) mkdirSync(dir, { recursive: true });
}

/** What to give to node so that it writes a profile when it ends. */
export function profileArguments(role) {
  if (folder === undefined) return [];
  return ["--cpu-prof", "--cpu-prof-dir", folder, "--cpu-prof-interval", "500", "--cpu-prof-name", `${role}-\${pid}.cpuprofile`].map(
    (argument) => argument.replace("${pid}", `${role}${Date.now()}${Math.floor(Math.random() * 1e6)}`),
  );
}

/** One text a profile: the share of its busy time that each function took itself. */
export function summaries(dir, top = 20) {
  return readdirSync(dir)
    .filter((name) => name.endsWith(".cpuprofile"))
    .map((name) => summary(name, JSON.parse(readFileSync(join(dir, name), "utf8")), top));
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
  const lines = [...own]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, top)
    .map(([what, micros]) => `${((100 * micros) / busy).toFixed(1).padStart(6)} %  ${what}`);
  return [`${name}: busy ${(busy / 1e6).toFixed(2)} s, idle ${(idle / 1e6).toFixed(2)} s`, ...lines].join("\n");
}
