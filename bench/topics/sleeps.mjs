/** Short tasks on many slots: how much of the slots' time is spent on tasks. */
import { startLaboro } from "../lib/laboro.mjs";
import { parallel } from "../peers/parallel.mjs";
import { spawnLoop } from "../peers/spawn-loop.mjs";
import { xargs } from "../peers/xargs.mjs";

const SLOTS = 8;
const SECONDS = 0.1;

export const sleeps = {
  name: "sleeps",
  title: "200 × sleep 0.1, eight at once",
  note: "Efficiency is the ideal time (200 × 0.1 s / 8) divided by the time taken.",
  targets: [{ figure: "efficiency", least: 0.95 }],
  async contestants({ scale }) {
    const laboro = await startLaboro();
    await laboro.worker(SLOTS);
    const argv = ["sleep", String(SECONDS)];
    const count = scale(200);
    const ideal = Math.ceil(count / SLOTS) * SECONDS;
    await laboro.run({ recipe: { kind: "command", argv: ["/bin/true"] }, count: 50 });
    const about = "sleep 0.1";
    const ours = async () => {
      const begin = performance.now();
      await laboro.run({ recipe: { kind: "command", argv }, count });
      return { efficiency: (ideal * 1_000) / (performance.now() - begin) };
    };
    const peers = [xargs, parallel, spawnLoop].filter(({ available }) => available());
    const list = [
      { about, who: "laboro", measure: ours },
      ...peers.map((peer) => ({
        about,
        who: `${peer.name}${SLOTS}`,
        measure: async () => ({ efficiency: ideal / (await peer.run({ argv, count, atOnce: SLOTS, bytes: 0 })) }),
      })),
    ];
    return { list, stop: () => laboro.stop() };
  },
};
