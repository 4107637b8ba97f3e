/**
 * Commands a second through the slots, beside xargs in the same run, at a small and at a large resident size of the agent.
 *
 *     npx tsc -p tsconfig.json --noEmit false --outDir dist/bench && node dist/bench/bench/processes.js
 *
 * One line a measurement; each figure is the median of the rounds, which take turns so that both see the same machine.
 */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type CommandSpec, openSlots } from "../src/worker/processes/index.js";

const ROUNDS = Number(process.env.ROUNDS ?? 7);
const COMMANDS = 2_000;
const run = promisify(execFile);

async function throughSlots(count: number, spec: CommandSpec, slotCount = 2): Promise<number> {
  const { slots, close } = openSlots({ count: slotCount });
  let bytes = 0;
  const drive = async (commands: number): Promise<void> => {
    let left = commands;
    await Promise.all(
      slots.map(
        (slot) =>
          new Promise<void>((resolve) => {
            const next = (): void => {
              if (left === 0) {
                resolve();
                return;
              }
              left -= 1;
              slot.run(spec, {
                output: (_stream, piece) => {
                  bytes += piece.length;
                },
                ended: (end) => {
                  if (end.code !== 0) throw new Error(`unexpected end: ${JSON.stringify(end)}`);
                  next();
                },
              });
            };
            next();
          }),
      ),
    );
  };
  await drive(slotCount);
  bytes = 0;
  const begin = performance.now();
  await drive(count);
  const seconds = (performance.now() - begin) / 1_000;
  await close();
  if (spec.argv.length > 1 && bytes !== count * 6) throw new Error(`${bytes} bytes of output instead of ${count * 6}`);
  return count / seconds;
}

async function throughXargs(count: number, command: string): Promise<number> {
  const begin = performance.now();
  await run("sh", ["-c", `seq ${count} | ${command}`], { maxBuffer: 1 << 26 });
  return (count * 1_000) / (performance.now() - begin);
}

const median = (figures: readonly number[]): number =>
  figures.toSorted((a, b) => a - b)[figures.length >> 1] ?? Number.NaN;

async function compare(
  name: string,
  ours: () => Promise<number>,
  peers: Readonly<Record<string, () => Promise<number>>>,
): Promise<void> {
  const our: number[] = [];
  const their = Object.entries(peers).map(([peer, measure]) => ({ peer, measure, figures: [] as number[] }));
  for (let round = 0; round < ROUNDS; round += 1) {
    our.push(await ours());
    for (const { measure, figures } of their) figures.push(await measure());
  }
  const mine = median(our);
  const beside = their.map(
    ({ peer, figures }) => `${peer} ${median(figures).toFixed(0)}/s (${(mine / median(figures)).toFixed(2)})`,
  );
  console.log(`${name}: ${mine.toFixed(0)}/s; ${beside.join("; ")}`);
}

const size = (): string => `${(process.memoryUsage().rss / 1_048_576).toFixed(0)} MB`;

async function atThisSize(): Promise<void> {
  await compare(
    `${COMMANDS} x /bin/true, two slots, agent of ${size()}`,
    () => throughSlots(COMMANDS, { argv: ["/bin/true"] }),
    {
      "xargs -P2 -n1": () => throughXargs(COMMANDS, "xargs -P2 -n1 /bin/true"),
      "xargs -P2 -I{}": () => throughXargs(COMMANDS, "xargs -P2 -I{} /bin/true"),
    },
  );
  await compare(
    `400 x sh -c 'echo hello' captured, two slots, agent of ${size()}`,
    () => throughSlots(400, { argv: ["sh", "-c", "echo hello"] }),
    { "xargs -P2 -n1": () => throughXargs(400, "xargs -P2 -n1 sh -c 'echo hello'") },
  );
}

await atThisSize();
const ballast = Buffer.alloc(1 << 30, 1);
await atThisSize();
if (ballast.length === 0) throw new Error("the ballast is to stay in memory to the end");
