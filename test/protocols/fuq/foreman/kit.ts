/** A real broker with listeners for fuq's workers on loopback, and literal workers that come to them. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocketServer } from "ws";
import { type Log, PeerErrors } from "../../../../src/base/log.js";
import { TracedConnections } from "../../../../src/base/traced-connections.js";
import type { Listener, ListenerContext } from "../../../../src/broker/listeners/listener.js";
import { WorkerId } from "../../../../src/model/ids.js";
import type { Submission } from "../../../../src/model/job-input.js";
import type { FuqNode } from "../../../../src/protocols/fuq/broker/http/nodes.js";
import {
  acceptFuqWebSocket,
  type FuqLinkOptions,
  openFuq1Listener,
  openFuqListenerWith,
} from "../../../../src/protocols/fuq/broker/listener.js";
import { atEnd } from "../../../support/at-end.js";
import { openTestBroker, type TestBroker } from "../../../support/test-broker.js";
import { LiteralWorker } from "./literal-worker.js";

export { atEnd };

export interface Yard extends TestBroker {
  readonly context: ListenerContext;
  /** What was said of peers that misbehaved. */
  readonly complaints: string[];
}

export async function openYard(options: Parameters<typeof openTestBroker>[0] = {}): Promise<Yard> {
  const setup = await openTestBroker(options);
  const complaints: string[] = [];
  const log: Log = { info: () => {}, warn: (_fields, text) => complaints.push(text), error: () => {} };
  const context: ListenerContext = {
    core: setup.broker.core,
    log,
    peerErrors: new PeerErrors(log),
    connections: new TracedConnections(),
    settings: {},
    guard: setup.broker.guard,
  };
  return { ...setup, context, complaints };
}

const ANYWHERE = { host: "127.0.0.1", ports: [0] };
const portOf = (listener: Listener): number => Number(new URL(listener.urls[0] ?? "").port);

/** The raw listener of version 2. */
export async function openRaw(yard: Yard, options: FuqLinkOptions = {}): Promise<number> {
  const listener = await openFuqListenerWith(options, yard.context, ANYWHERE);
  atEnd(() => listener.close());
  return portOf(listener);
}

export async function openV1(yard: Yard): Promise<number> {
  const listener = await openFuq1Listener(yard.context, ANYWHERE);
  atEnd(() => listener.close());
  return portOf(listener);
}

export const nodeNamed = (uniqueName: string): FuqNode => ({
  id: WorkerId(`fuq:${uniqueName}`),
  info: { node: "vm", pid: 1, uniqueName, tags: [], nproc: 2 },
  stopping: false,
});

/** The WebSocket of version 2, for a node whose cookie has been looked at. */
export async function openWeb(yard: Yard, node: FuqNode, options: FuqLinkOptions = {}): Promise<string> {
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const server = createServer();
  server.on("upgrade", (request, socket, head) => {
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      acceptFuqWebSocket(yard.context, node, webSocket, "127.0.0.1", options);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.close();
  });
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}/node/persistent`;
}

export async function rawWorker(port: number): Promise<LiteralWorker> {
  const worker = await LiteralWorker.onStream(port);
  atEnd(() => worker.cut());
  return worker;
}

export async function webWorker(url: string): Promise<LiteralWorker> {
  const worker = await LiteralWorker.onWebSocket(url);
  atEnd(() => worker.cut());
  return worker;
}

/** Tasks as a plain fuq worker runs them. */
export const numbered = (count: number, more: Partial<Submission> = {}): Submission => ({
  name: "demo",
  count,
  recipe: {
    kind: "command",
    argv: ["/bin/echo", "{#}"],
    placeholders: true,
    dir: "/data/dir",
    log: "/log/dir/demo_{#}.log",
  },
  ...more,
});
