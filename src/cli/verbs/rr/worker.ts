/** `laboro rr worker`: a console with one worker, and nine more for bulk tests. */
import { messageName } from "../../../protocols/round-robin/describe.js";
import { RoundRobinWorker } from "../../../protocols/round-robin/worker/worker.js";
import type { CurveClient } from "../../../protocols/zeromq/index.js";
import { ConsoleOutput, commandList, runConsole } from "./console.js";

export interface WorkerConsoleOptions {
  readonly url: string;
  readonly level: number;
  readonly script?: string | undefined;
  readonly curve?: CurveClient | undefined;
}

/** Workers of this console during a bulk test, each with ten slots. */
const BULK = 10;
const SLOTS = 10;

export async function runWorkerConsole({ url, level, script, curve }: WorkerConsoleOptions): Promise<number> {
  const output = new ConsoleOutput("WORKER", level);
  const open = (): Promise<RoundRobinWorker> =>
    RoundRobinWorker.open({
      url,
      slots: SLOTS,
      curve,
      onMessage: (message) =>
        output.log(
          1,
          `got ${messageName(message)} from ${message.returnPath.at(-1)?.toString("latin1") ?? "the server"}`,
        ),
      onDisconnected: (why) => output.log(1, `the server is gone: ${why}`),
      onReregistered: () => output.log(1, "registered again"),
      onError: (cause) => output.fail(cause),
    });
  const parent = await open();
  let children: RoundRobinWorker[] = [];

  const endBulk = async (): Promise<void> => {
    const ended = children;
    children = [];
    await Promise.all(ended.map((child) => child.close()));
    if (ended.length > 0) output.log(1, `${ended.length} child workers have deregistered and ended`);
    for (const { identity, counts } of ended) output.log(5, `${identity}: ${countsText(counts)}`);
    const total = ended.reduce(
      (sum, { counts }) => ({
        messages: sum.messages + counts.messages,
        answered: sum.answered + counts.answered,
        failed: sum.failed + counts.failed,
      }),
      { messages: 0, answered: 0, failed: 0 },
    );
    if (ended.length > 0) output.log(5, `together: ${countsText(total)}`);
  };

  const commands = {
    register: {
      run: async () => {
        await parent.register();
        output.log(1, `registered as ${parent.identity} with ${SLOTS} slots`);
      },
    },
    deregister: {
      run: async () => {
        await parent.deregister();
        output.log(1, "deregistered");
      },
    },
    bulk: {
      run: async () => {
        const wanted = BULK - children.length - (parent.registered ? 1 : 0);
        const more = await Promise.all(Array.from({ length: Math.max(0, wanted) }, open));
        children.push(...more);
        await Promise.all(more.map((child) => child.register()));
        output.log(1, `${children.length} child workers are registered, ${SLOTS} slots each`);
      },
    },
    endbulk: { run: endBulk },
  };
  output.log(1, `for the server at ${url}; commands: ${commandList(commands)}`);
  await runConsole({ commands, output, script });
  await endBulk();
  await parent.close();
  output.log(1, "finished");
  return output.failures;
}

const countsText = ({ messages, answered, failed }: RoundRobinWorker["counts"]): string =>
  `${messages} messages, ${answered} succeeded, ${failed} failed`;
