/** `laboro rr worker`: a console with one worker, and nine more for bulk tests. */
import { nameOf } from "../../../protocols/round-robin/describe.js";
import { RoundRobinWorker } from "../../../protocols/round-robin/worker/worker.js";
import type { CurveClient } from "../../../protocols/zeromq/index.js";
import { listOf, runConsole, Voice } from "./console.js";

export interface WorkerConsole {
  readonly url: string;
  readonly level: number;
  readonly script?: string;
  readonly curve?: CurveClient;
}

/** Workers of this console during a bulk test, each with ten slots. */
const BULK = 10;
const SLOTS = 10;

export async function workerConsole({ url, level, script, curve }: WorkerConsole): Promise<number> {
  const voice = new Voice("WORKER", level);
  const open = (): Promise<RoundRobinWorker> =>
    RoundRobinWorker.open({
      url,
      slots: SLOTS,
      ...(curve === undefined ? {} : { curve }),
      heard: (message) =>
        voice.say(1, `got ${nameOf(message)} from ${message.back.at(-1)?.toString("latin1") ?? "the server"}`),
      lost: (why) => voice.say(1, `the server is gone: ${why}`),
      registeredAgain: () => voice.say(1, "registered again"),
      failed: (cause) => voice.fail(cause),
    });
  const parent = await open();
  let children: RoundRobinWorker[] = [];

  const endBulk = async (): Promise<void> => {
    const ended = children;
    children = [];
    await Promise.all(ended.map((child) => child.close()));
    if (ended.length > 0) voice.say(1, `${ended.length} child workers have deregistered and ended`);
    for (const { identity, counts } of ended) voice.say(5, `${identity}: ${countsText(counts)}`);
    const total = ended.reduce(
      (sum, { counts }) => ({
        messages: sum.messages + counts.messages,
        answered: sum.answered + counts.answered,
        failed: sum.failed + counts.failed,
      }),
      { messages: 0, answered: 0, failed: 0 },
    );
    if (ended.length > 0) voice.say(5, `together: ${countsText(total)}`);
  };

  const commands = {
    register: {
      run: async () => {
        await parent.register();
        voice.say(1, `registered as ${parent.identity} with ${SLOTS} slots`);
      },
    },
    deregister: {
      run: async () => {
        await parent.deregister();
        voice.say(1, "deregistered");
      },
    },
    bulk: {
      run: async () => {
        const wanted = BULK - children.length - (parent.registered ? 1 : 0);
        const more = await Promise.all(Array.from({ length: Math.max(0, wanted) }, open));
        children.push(...more);
        await Promise.all(more.map((child) => child.register()));
        voice.say(1, `${children.length} child workers are registered, ${SLOTS} slots each`);
      },
    },
    endbulk: { run: endBulk },
  };
  voice.say(1, `for the server at ${url}; commands: ${listOf(commands)}`);
  await runConsole({ commands, voice, ...(script === undefined ? {} : { script }) });
  await endBulk();
  await parent.close();
  voice.say(1, "finished");
  return voice.failures;
}

const countsText = ({ messages, answered, failed }: RoundRobinWorker["counts"]): string =>
  `${messages} messages, ${answered} succeeded, ${failed} failed`;
