/** laboro beside its peers: one table a topic, all from one run. `npm run bench -- --help` */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cleanUp, setBase } from "./lib/children.mjs";
import { takeTurns } from "./lib/figures.mjs";
import { describe, machine } from "./lib/machine.mjs";
import { HELP, readOptions } from "./lib/options.mjs";
import { profileInto, summaries } from "./lib/profile.mjs";
import { tableOf } from "./lib/table.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const RESULTS = join(ROOT, "bench", "results");

const options = readOptions(process.argv.slice(2));
if (options.help) {
  console.log(HELP);
  process.exit(0);
}
if (!existsSync(join(ROOT, "dist", "cli", "main.js"))) npm(["run", "build"], ROOT);
if (options.peers && !existsSync(join(ROOT, "bench", "peers", "node_modules"))) {
  npm(["ci", "--ignore-scripts"], join(ROOT, "bench", "peers"));
}
// After the build: the topics import what it makes.
const { TOPICS } = await import("./topics/index.mjs");
if (options.list) {
  for (const { name, title } of TOPICS) console.log(`${name.padEnd(14)} ${title}`);
  process.exit(0);
}
const unknown = options.only.filter((name) => !TOPICS.some((topic) => topic.name === name));
if (unknown.length > 0) throw new Error(`--only: there is no ${unknown.join(", ")}; --list says what there is`);
if (options.dir !== undefined) setBase(options.dir);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => cleanUp().then(() => process.exit(130)));

const progress = (line) => process.stderr.write(`  ${line}\n`);
const report = {
  at: new Date().toISOString(),
  runs: options.runs,
  quick: options.quick,
  machine: machine(),
  topics: [],
};
console.log(`${describe(report.machine)}; ${options.runs} runs${options.quick ? ", quick: not to be quoted" : ""}\n`);

try {
  for (const topic of TOPICS) {
    if (options.only.length > 0 && !options.only.includes(topic.name)) continue;
    try {
      report.topics.push(await measure(topic));
    } catch (cause) {
      // The others are still worth having.
      console.log(`### ${topic.title}\n\nnot measured: ${cause.message}\n`);
      process.exitCode = 1;
      await cleanUp();
    }
  }
} finally {
  await cleanUp();
}
mkdirSync(RESULTS, { recursive: true });
const file = join(RESULTS, `${report.at.replaceAll(":", "-")}.json`);
writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
console.log(`written to ${file}`);
process.exit();

async function measure(topic) {
  const { name, title } = topic;
  process.stderr.write(`${title}\n`);
  const profiles = options.profile ? join(RESULTS, `profile-${name}-${report.at.replaceAll(":", "-")}`) : undefined;
  profileInto(profiles);
  const scale = (count) => (options.quick ? Math.max(1, Math.round(count / 10)) : count);
  const { list, stop } = await topic.contestants({ scale, progress, long: options.long });
  const rows = await takeTurns(list, options.runs, progress);
  await stop();
  console.log(tableOf(topic, rows));
  if (profiles !== undefined) console.log(`${summaries(profiles).join("\n\n")}\n`);
  return { name, title, rows };
}

function npm(args, cwd) {
  execFileSync("npm", args, { cwd, stdio: ["ignore", "inherit", "inherit"] });
}
