/** Starting processes: what stands between a list of commands and their ends. */
import { startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";
import { parallel } from "../peers/parallel.mjs";
import { spawnLoop } from "../peers/spawn-loop.mjs";
import { xargs } from "../peers/xargs.mjs";

const TRUE = "/bin/true";
const ECHO = "sh -c 'echo hello', captured";
const CASES = [
  { about: TRUE, argv: ["/bin/true"], count: 2_000, bytes: 0 },
  { about: ECHO, argv: ["sh", "-c", "echo hello"], count: 400, bytes: 6 },
];

export const commands = {
  name: "commands",
  title: "Commands, two at once",
  note: "A warm broker and one worker of two slots. `xargs` is `seq N | xargs -P2 -n1 COMMAND`.",
  targets: [
    { about: TRUE, figure: "per s", than: "xargs -P2", least: 0.7 },
    { about: TRUE, figure: "per s", than: "xargs -P2", least: 0.9 },
    { about: ECHO, figure: "per s", than: "xargs -P2", least: 0.7 },
  ],
  async contestants({ scale }) {
    const laboro = await startLaboro();
    const worker = await laboro.worker(2);
    await laboro.run({ recipe: { kind: "command", argv: ["/bin/true"] }, count: 50 });
    const list = CASES.flatMap(({ about, argv, count: full, bytes }) => {
      const count = scale(full);
      const ours = async () => {
        let job;
        const { seconds, cpu } = await metered({ broker: laboro.broker, worker }, async () => {
          job = await laboro.run({ recipe: { kind: "command", argv }, count });
        });
        await laboro.verify(job, count);
        const last = await job.text(count - 1);
        if (Buffer.byteLength(last) !== bytes) throw new Error(`unexpected output: ${last}`);
        return {
          "per s": count / seconds,
          "broker CPU µs": cpu.broker / count,
          "worker CPU µs": cpu.worker / count,
        };
      };
      const peers = [xargs, parallel, spawnLoop].filter(({ available }) => available());
      return [
        { about, who: "laboro", measure: ours },
        ...peers.map((peer) => ({
          about,
          who: `${peer.name}2`,
          measure: async () => ({ "per s": count / (await peer.run({ argv, count, atOnce: 2, bytes })) }),
        })),
      ];
    });
    return { list, stop: () => laboro.stop() };
  },
};
