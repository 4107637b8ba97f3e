/** A broker in the middle of a batch, callers that mean no good, and the check that the batch did not suffer. */
import { connect as connectSocket, type Socket } from "node:net";
import { expect } from "vitest";
import { WebSocket } from "ws";
import { SessionId } from "../../src/model/ids.js";
import { type Join, LINK_VERSION, SUBPROTOCOL } from "../../src/protocols/laboro/messages.js";
import { account, RunLog } from "./batch.js";
import { memoryOf } from "./process-table.js";
import type { BrokerLaunch, Site } from "./site.js";
import { until } from "./wait.js";

/** A worker that takes no work of others: its pool is empty. */
export const join = (rest: Partial<Join> = {}): Join => ({
  type: "JOIN",
  version: LINK_VERSION,
  secret: "intruder".repeat(4),
  session: SessionId("session"),
  name: "intruder",
  total: { slots: 2 },
  tags: [],
  pool: "nobody",
  services: [],
  reserveRequests: 0,
  held: [],
  ...rest,
});

/** Opens a link with the right token; resolves when it is open. */
export function openLink(site: Site): Promise<WebSocket> {
  const socket = new WebSocket(`${site.url.replace("http", "ws")}/node/persistent`, SUBPROTOCOL, {
    headers: { authorization: `Bearer ${site.token}` },
  });
  socket.on("error", () => {});
  return new Promise((resolve, reject) => {
    socket.once("open", () => resolve(socket));
    socket.once("close", () => reject(new Error("the broker closed the link before it was open")));
  });
}

/**
 * Sends frames on a link of its own, and gives the reason for which the broker closed it, if it did so in time; or, with "read", before it
 * answered a ping that follows the frames.
 */
export async function sendFrames(
  site: Site,
  frames: readonly Uint8Array[],
  patience: number | "read" = 200,
): Promise<string | undefined> {
  const socket = await openLink(site);
  return new Promise((resolve) => {
    const leave = (): void => {
      socket.terminate();
      resolve(undefined);
    };
    const timer = patience === "read" ? undefined : setTimeout(leave, patience);
    socket.once("close", (_code, reason) => {
      clearTimeout(timer);
      resolve(reason.toString());
    });
    for (const frame of frames) socket.send(frame);
    if (patience !== "read") return;
    socket.once("pong", leave);
    socket.ping();
  });
}

/** Bytes that open no link, each on a socket of its own that stays open. */
export const rawSocket = (site: Site, bytes: Uint8Array | string): Socket =>
  rawSocketAt(Number(new URL(site.url).port), bytes);

export function rawSocketAt(port: number, bytes: Uint8Array | string): Socket {
  const socket = connectSocket(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(bytes);
  return socket;
}

/** A broker with a real worker in the middle of a batch. */
export async function busySite(site: Site, count: number, launch: BrokerLaunch = {}) {
  const broker = await site.startBroker(launch);
  await site.startWorker("one", { slots: 2 });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.recipe("echo mine"), count });
  await until("the batch runs", () => log.count > 10);
  return { site, broker, client, log, job };
}

export async function expectUnharmed(
  what: string,
  { site, broker, client, log, job }: Awaited<ReturnType<typeof busySite>>,
  count: number,
) {
  expect(await job.wait()).toBe("succeeded");
  const { lost, unrun, runTwice, results } = await account(client, job.id, count, log);
  const foreign = results.filter(({ worker }) => worker !== "one");
  console.log(
    `${what}: lost: ${lost.length}, run twice: ${runTwice.length}, foreign results: ${foreign.length}, broker at ${Math.round(memoryOf(broker.pid).most)} MiB at most`,
  );
  expect({ lost, unrun, runTwice, foreign }).toEqual({ lost: [], unrun: [], runTwice: [], foreign: [] });
  expect(broker.over).toBe(false);
  expect(await job.text(count - 1)).toBe("mine\n");
  expect((await fetch(`${site.url}/healthz`)).status).toBe(200);
}
