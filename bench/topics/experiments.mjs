/** A folder of experiments at a runner: the pair that takes the place of queueexp and runexp. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { removeFolder, start, temporaryFolder } from "../lib/children.mjs";

const LABORO = fileURLToPath(new URL("../../bin/laboro", import.meta.url));
const THREADS = 2;

export const experiments = {
  name: "experiments",
  title: "Experiments by runexp's protocol, two at once",
  note: "`echo RES:done`, each a script of its own; `laboro experiments` and `laboro runner 2`, each a process, from the first job to the runner's last word. The original pair does 101 a second on two cores.",
  targets: [{ figure: "per s", least: 505 }],
  async contestants({ scale }) {
    const count = scale(300);
    const folders = [];
    return {
      list: [{ about: `${count} experiments`, who: "laboro", measure: () => measure(count, folders) }],
      // Not sooner: a file system that has just removed many files is slow to make new ones.
      stop: async () => folders.forEach(removeFolder),
    };
  },
};

async function measure(count, folders) {
  const dir = temporaryFolder("experiments");
  folders.push(dir);
  mkdirSync(join(dir, "runs"));
  for (let i = 0; i < count; i++) writeFileSync(join(dir, "runs", `e${i}.sh`), "echo RES:done\n");
  const port = await freePort();
  const manager = start(process.execPath, [LABORO, "experiments", dir, "-v", "-q", "-p", String(port)]);
  await manager.says(/runners come in at/);
  const runner = start(process.execPath, [LABORO, "runner", String(THREADS), "-c", `127.0.0.1:${port}`, "--data", dir]);
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
