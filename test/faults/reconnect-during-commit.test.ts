import { expect, it } from "vitest";
import type { WebSocket } from "ws";
import { decodeFrame, encodeFrame } from "../../src/protocols/laboro/codec.js";
import type { AttemptRange, ToWorker } from "../../src/protocols/laboro/messages.js";
import { join, openLink } from "../support/intruder.js";
import { SeededRandom } from "../support/random.js";
import { TRUE } from "../support/recipes.js";
import { sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const ROUNDS = 60;
const TASKS = 20;
const newSite = sites();

/** What the broker says on a link, in order. */
function listen(socket: WebSocket): ToWorker[] {
  const heard: ToWorker[] = [];
  socket.on("message", (bytes: Buffer) => heard.push(...decodeFrame(bytes, "brokerToWorker")));
  return heard;
}

const tasksIn = (heard: readonly ToWorker[]): AttemptRange[] => heard.filter((message) => message.type === "TASKS");

it("hands a task once to a worker that comes back while the hand-out is on its way to the disk", async () => {
  const random = new SeededRandom();
  const site = newSite();
  await site.startBroker({ heartbeatMs: 5_000 });
  const client = await site.client();
  let twice = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const pool = `round-${round}`;
    const joining = encodeFrame([join({ secret: pool.repeat(32), pool, total: { slots: TASKS } })]);
    const first = await openLink(site);
    const before = listen(first);
    first.send(joining);
    await until("the worker is welcome", () => before.length > 0);
    const second = await openLink(site);
    const after = listen(second);

    const submitted = client.submit({ recipe: TRUE, count: TASKS, pool });
    await sleep(random.next() * 6);
    // The same life of the same worker, which holds nothing: what was sent to its first connection never arrived.
    second.send(joining);
    const { id } = await submitted;
    const seen = (): number => tasksIn(after).reduce((sum, { first: from, last }) => sum + last - from + 1, 0);
    await until("all tasks were handed out", () => seen() >= TASKS);
    const welcomed = after.findIndex(({ type }) => type === "WELCOME");
    expect(welcomed).toBe(0);

    const handedOut = new Map<number, number>();
    for (const { first: from, last } of tasksIn(after)) {
      for (let index = from; index <= last; index++) handedOut.set(index, (handedOut.get(index) ?? 0) + 1);
    }
    twice += [...handedOut.values()].filter((times) => times > 1).length;
    await client.job(id).cancel();
    first.terminate();
    second.terminate();
  }
  console.log(
    `worker came back during a commit ${ROUNDS} times (seed ${random.seed}): handed out twice: ${twice} of ${ROUNDS * TASKS}`,
  );
  expect(twice).toBe(0);
});
