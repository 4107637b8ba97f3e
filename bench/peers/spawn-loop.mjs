/** The least that a Node program can do: spawn, wait, spawn the next. Runs in a small process of its own. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";

const LOOP = fileURLToPath(new URL("spawn-loop-process.mjs", import.meta.url));

export const spawnLoop = {
  name: "Node spawn loop, ",
  available: () => true,
  run: async (work) => {
    const loop = startModule(LOOP);
    const { seconds } = await loop.ask(work);
    await loop.stop();
    return seconds;
  },
};
