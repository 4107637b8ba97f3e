/** Whole command lines, as a user types them: from the start of the shell to the exit code. */
import { execFileSync } from "node:child_process";
import { mkdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { start, temporaryFolder, which } from "../lib/children.mjs";
import { median } from "../lib/figures.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { watchResident } from "../lib/usage.mjs";

const BIN = fileURLToPath(new URL("../../bin", import.meta.url));
const TRUE = "/bin/true";
const ECHO = "echo hello {}";
const WITH_BROKER = ", a running broker and worker";
const BIG = "cat of 1 GiB";
const COLD = "start to end";
const GIB = 2 ** 30;

export const typed = {
  name: "typed",
  title: "Whole commands as typed, two at once",
  note: "Each line runs in a shell, in an empty directory: `laboro run --array 1-N -- /bin/true` beside `seq N | xargs -P2 -n1 /bin/true`, and `laboro run --array 1-N 'echo hello {}'` beside `seq N | xargs -P2 -I@ sh -c 'echo hello @'`, output into a file. N is 20,000; for GNU parallel 2,000. Starting of broker and worker is included, except where they run already. The last rows are milliseconds from start to end, beside `node -e 0`.",
  targets: [
    { about: TRUE, figure: "per s", than: "xargs -P2", least: 0.9 },
    { about: ECHO, figure: "per s", than: "xargs -P2", least: 0.8 },
    { about: TRUE + WITH_BROKER, figure: "per s", than: "xargs -P2", least: 0.85 },
    { about: ECHO + WITH_BROKER, figure: "per s", than: "xargs -P2", least: 0.75 },
    { about: BIG, figure: "MiB/s", than: "cat | cat", least: 0.4 },
    // It does not grow with the output.
    { about: BIG, figure: "largest MiB", most: 200 },
    { about: COLD, who: "laboro run, one echo", figure: "ms", than: "node -e 0", most: 3.5 },
    { about: COLD, who: "laboro status", figure: "ms", than: "node -e 0", most: 1.6 },
    { about: COLD, who: "laboro submit", figure: "ms", than: "node -e 0", most: 1.6 },
  ],
  async contestants({ scale }) {
    const base = temporaryFolder("typed");
    const laboro = await startLaboro();
    await laboro.worker(2);
    const many = scale(20_000);
    const line = lines(base, laboro.dir);
    const list = [
      ...batch(line, TRUE, many, `/bin/true`, 0),
      ...batch(line, ECHO, many, `'echo hello {}'`, helloBytes(many)),
      ...large(line, base, scale(GIB)),
      ...cold(line, scale(10)),
    ];
    return { list, stop: () => laboro.stop() };
  },
};

/**
 * Runs a command line in an empty directory, without a broker configured or (`broker`) with the one that runs. Output goes to a file
 * `out` or is thrown away. Gives the seconds it took, and the largest resident memory of its process.
 */
function lines(base, data) {
  let number = 0;
  return async (text, { broker = false, bytes } = {}) => {
    const dir = join(base, String(++number));
    mkdirSync(dir);
    const env = { ...process.env, HOME: dir, PATH: `${BIN}:${process.env.PATH}` };
    for (const name of Object.keys(env)) if (name.startsWith("LABORO_")) delete env[name];
    // Node reads these certificates at every start, which would make laboro look cheap beside `node -e 0`.
    delete env.NODE_EXTRA_CA_CERTS;
    if (broker) env.LABORO_DATA = data;
    const begin = performance.now();
    const shell = start("sh", ["-c", text], { cwd: dir, env });
    const resident = watchResident(shell.pid);
    const how = await shell.ended;
    const seconds = (performance.now() - begin) / 1_000;
    const largest = resident();
    if (how !== 0) throw new Error(`${text} ended with ${how}: ${shell.said()}`);
    if (bytes !== undefined && statSync(join(dir, "out")).size !== bytes) throw new Error(`${text}: wrong output`);
    return { seconds, largest };
  };
}

function batch(line, about, count, command, bytes) {
  const words = about === TRUE ? `-- ${command}` : command;
  const run = (jobs) => `exec laboro run ${jobs} --array 1-${count} ${words} >out`;
  const xargs = about === TRUE ? "-n1 /bin/true" : "-I@ sh -c 'echo hello @'";
  const few = Math.max(1, Math.round(count / 10));
  const rate = async (text, n, options) => ({ "per s": n / (await line(text, options)).seconds });
  const peers = (rows) => rows.filter(({ program }) => which(program) !== undefined);
  const beside = peers([
    {
      who: "xargs -P2",
      program: "xargs",
      measure: () => rate(`seq ${count} | xargs -P2 ${xargs} >out`, count, { bytes }),
    },
  ]);
  return [
    { about, who: "laboro", measure: () => rate(run("-j2"), count, { bytes }) },
    ...beside.map((peer) => ({ about, ...peer })),
    ...peers([
      {
        about,
        who: "GNU parallel -j2",
        program: "parallel",
        measure: () => rate(`seq ${few} | parallel --will-cite -j2 ${command} >out`, few),
      },
    ]),
    { about: about + WITH_BROKER, who: "laboro", measure: () => rate(run(""), count, { bytes, broker: true }) },
    ...beside.map((peer) => ({ about: about + WITH_BROKER, ...peer })),
  ];
}

/** The bytes of the lines `hello 1` to `hello N`. */
function helloBytes(count) {
  let bytes = 0;
  for (let number = 1; number <= count; number++) bytes += 7 + String(number).length;
  return bytes;
}

function large(line, base, size) {
  const file = join(base, "big");
  writeFileSync(file, "");
  truncateSync(file, size);
  // The first reader would pay for its pages in memory.
  execFileSync("cat", [file], { stdio: "ignore" });
  const measure = async (text) => {
    const { seconds, largest } = await line(text);
    return { "MiB/s": size / 2 ** 20 / seconds, "largest MiB": largest / 2 ** 20 };
  };
  return [
    { about: BIG, who: "laboro", measure: () => measure(`exec laboro run -- cat ${file} >/dev/null`) },
    {
      about: BIG,
      who: "cat | cat",
      measure: async () => ({ "MiB/s": (await measure(`cat ${file} | cat >/dev/null`))["MiB/s"] }),
    },
  ];
}

function cold(line, times) {
  const typical = (text, options) => async () => {
    const taken = [];
    for (let i = 0; i < times; i++) taken.push((await line(text, options)).seconds * 1_000);
    return { ms: median(taken) };
  };
  return [
    { about: COLD, who: "node -e 0", measure: typical("exec node -e 0") },
    { about: COLD, who: "laboro run, one echo", measure: typical("exec laboro run echo hello") },
    { about: COLD, who: "laboro status", measure: typical("exec laboro status", { broker: true }) },
    { about: COLD, who: "laboro submit", measure: typical("exec laboro submit /bin/true", { broker: true }) },
  ];
}
