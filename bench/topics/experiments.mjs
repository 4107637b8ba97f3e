/** A folder of experiments at a runner: the pair that takes the place of queueexp and runexp, beside these where they are installed. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { removeFolder, start, temporaryFolder, which } from "../lib/children.mjs";

const LABORO = fileURLToPath(new URL("../../bin/laboro", import.meta.url));
const THREADS = 2;
const ORIGINAL = "queueexp, runexp";

const OURS = {
  manager: async (dir, port) => {
    const manager = start(process.execPath, [LABORO, "experiments", dir, "-v", "-q", "-p", String(port)]);
    await manager.says(/tcp:\/\/\S+/);
    return manager;
  },
  runner: (dir, port) =>
    start(process.execPath, [LABORO, "runner", String(THREADS), "-c", `127.0.0.1:${port}`, "--data", dir]),
};

const THEIRS = {
  manager: async (dir, port) => {
    mkdirSync(join(dir, "outputs"));
    const env = { ...process.env, HOME: dir };
    const manager = start("queueexp", [dir, "-q", "-p", String(port)], { env });
    await manager.says(/I did not do anything yet/);
    // It says so before it listens.
    await new Promise((resolve) => setTimeout(resolve, 500));
    return manager;
  },
  runner: (dir, port) =>
    start("runexp", [String(THREADS), "-c", `127.0.0.1:${port}`], { env: { ...process.env, HOME: dir } }),
};

export const experiments = {
  name: "experiments",
  title: "Experiments by runexp's protocol, two at once",
  note: "`echo RES:done`, each a script of its own; manager and runner, each a process, from the first job to the runner's last word.",
  targets: [{ figure: "per s", than: ORIGINAL, least: 3 }],
  async contestants({ scale }) {
    const count = scale(300);
    const folders = [];
    const about = `${count} experiments`;
    const pair = (who, kind) => ({ about, who, measure: () => measure(count, folders, kind) });
    const originals = [which("queueexp"), which("runexp")].every((path) => path !== undefined);
    return {
      list: [pair("laboro", OURS), ...(originals ? [pair(ORIGINAL, THEIRS)] : [])],
      // Not sooner: a file system that has just removed many files is slow to make new ones.
      stop: async () => folders.forEach(removeFolder),
    };
  },
};

async function measure(count, folders, kind) {
  const dir = temporaryFolder("experiments");
  folders.push(dir);
  mkdirSync(join(dir, "runs"));
  for (let i = 0; i < count; i++) writeFileSync(join(dir, "runs", `e${i}.sh`), "echo RES:done\n");
  const port = await freePort();
  const manager = await kind.manager(dir, port);
  const runner = kind.runner(dir, port);
  await runner.says(/Running/);
  const begin = performance.now();
  await runner.says(/Done!/);
  const seconds = (performance.now() - begin) / 1_000;
  const codes = [await runner.ended, await manager.ended];
  const results = readdirSync(join(dir, "outputs")).filter((name) => name.endsWith(".res"));
  if (codes.some((code) => code !== 0) || results.length !== count) {
    throw new Error(`${results.length} of ${count} results, exit codes ${codes}: ${manager.said()}${runner.said()}`);
  }
  return { "per s": count / seconds };
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
