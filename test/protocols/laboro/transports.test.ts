/** What a Connection promises, on both transports: a WebSocket, and memory within one process. */
import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { JobId } from "../../../src/model/ids.js";
import { type CloseReason, Connection } from "../../../src/protocols/laboro/connection.js";
import { type MemorySocket, memoryPair } from "../../../src/protocols/laboro/memory-transport.js";
import {
  type FromClient,
  type FromWorker,
  type LinkMessage,
  SUBPROTOCOL,
  type ToClient,
  type ToWorker,
} from "../../../src/protocols/laboro/messages.js";
import { until } from "../../support/wait.js";
import { listen } from "./loopback.js";

const toClose: { close: () => unknown }[] = [];
afterEach(async () => {
  for (const open of toClose.splice(0).reverse()) await open.close();
});

interface End<In extends LinkMessage, Out extends LinkMessage> {
  readonly link: Connection<In, Out>;
  readonly batches: (readonly In[])[];
  readonly closes: CloseReason[];
}

type BrokerEnd = End<FromWorker | FromClient, ToWorker | ToClient>;
type WorkerEnd = End<ToWorker, FromWorker>;

function endOf<In extends LinkMessage, Out extends LinkMessage>(
  socket: WebSocket | MemorySocket,
  from: "caller" | "brokerToWorker",
): End<In, Out> {
  const batches: (readonly In[])[] = [];
  const closes: CloseReason[] = [];
  const link = new Connection<In, Out>(
    socket,
    { from },
    { onMessages: (batch) => batches.push(batch), onClose: (reason) => closes.push(reason) },
  );
  toClose.push({ close: () => link.close() });
  return { link, batches, closes };
}

interface Pair {
  readonly broker: BrokerEnd;
  readonly worker: WorkerEnd;
  /** The worker's process is gone. */
  readonly vanish: () => void;
}

const TRANSPORTS: Readonly<Record<string, () => Promise<Pair>>> = {
  "a WebSocket": async () => {
    let broker: BrokerEnd | undefined;
    const listener = await listen({ onConnection: (socket) => (broker = endOf(socket, "caller")) });
    toClose.push(listener);
    const socket = new WebSocket(`${listener.url}/node/persistent`, SUBPROTOCOL, { perMessageDeflate: false });
    await until("the connection", () => broker !== undefined && socket.readyState === WebSocket.OPEN);
    const worker: WorkerEnd = endOf(socket, "brokerToWorker");
    return { broker: broker as unknown as BrokerEnd, worker, vanish: () => socket.terminate() };
  },
  memory: async () => {
    const [near, far] = memoryPair();
    return { broker: endOf(near, "caller"), worker: endOf(far, "brokerToWorker"), vanish: () => far.terminate() };
  },
};

const join: FromWorker = {
  type: "JOIN",
  version: 1,
  secret: "w".repeat(32),
  session: "s" as never,
  name: "n",
  total: { slots: 1 },
  tags: [],
  pool: "default",
  services: [],
  reserveRequests: 0,
  held: [],
};
const started = (index: number): FromWorker => ({ type: "STARTED", tasks: [{ job: JobId(1), index, attempt: 1 }] });

describe.each(Object.keys(TRANSPORTS))("over %s", (name) => {
  const connect = async (): Promise<Pair> => {
    const pair = await (TRANSPORTS[name] as () => Promise<Pair>)();
    pair.worker.link.send(join);
    await until("JOIN", () => pair.broker.batches.length === 1);
    pair.broker.batches.length = 0;
    return pair;
  };

  test("what is sent in one turn arrives as one batch, later, in both directions", async () => {
    const { broker, worker } = await connect();
    worker.link.send(started(1));
    worker.link.send(started(2));
    broker.link.send({ type: "ACK", seq: 1 });
    broker.link.send({ type: "CREDIT", bytes: 5 });
    expect(worker.link.bufferedBytes).toBeGreaterThan(0);
    expect([broker.batches, worker.batches]).toEqual([[], []]);
    await until("the messages", () => broker.batches.length > 0 && worker.batches.length > 0);
    expect(broker.batches).toEqual([[started(1), started(2)]]);
    expect(worker.batches).toEqual([
      [
        { type: "ACK", seq: 1 },
        { type: "CREDIT", bytes: 5 },
      ],
    ]);
    expect(worker.link.bufferedBytes).toBe(0);
  });

  test("an answer from within a handler arrives in a later turn, and others get their turn between", async () => {
    const { broker, worker } = await connect();
    let inHandler = false;
    let answers = 0;
    worker.link.handOver({
      onMessages: () => {
        expect(inHandler).toBe(false);
        answers++;
        worker.link.send(started(answers));
      },
      onClose: () => {},
    });
    broker.link.handOver({
      onMessages: () => {
        inHandler = true;
        broker.link.send({ type: "ACK", seq: 1 });
        inHandler = false;
      },
      onClose: () => {},
    });
    worker.link.send(started(0));
    let turns = 0;
    const count = (): void => {
      turns++;
      if (answers < 100) setImmediate(count);
    };
    count();
    await until("a hundred answers", () => answers >= 100);
    expect(turns).toBeGreaterThan(5);
  });

  test("a large message passes whole", async () => {
    const { broker, worker } = await connect();
    const body = randomBytes(20 * 1024 * 1024);
    worker.link.send({ type: "REPLY", id: 1, body });
    await until("the message", () => broker.batches.length === 1);
    const reply = broker.batches[0]?.[0];
    expect(reply?.type === "REPLY" && body.equals(reply.body)).toBe(true);
  });

  test("what a caller changes after it was sent does no harm", async () => {
    const { broker, worker } = await connect();
    const body = Buffer.from("before");
    worker.link.send({ type: "REPLY", id: 1, body });
    body.write("after!");
    const client = worker.link as unknown as Connection<ToClient, FromClient>;
    const input = { name: "before", list: [1, undefined], gone: undefined };
    // A worker has no operations; on a socket the frame would end the link.
    if (name === "memory") client.send({ type: "OPERATION", id: 2, operation: "x", input });
    input.name = "after";
    await until("the message", () => broker.batches.length > 0);
    const [reply, operation] = broker.batches.flat();
    expect(reply?.type === "REPLY" && Buffer.from(reply.body).toString()).toBe("before");
    if (name === "memory")
      expect(operation).toEqual({
        type: "OPERATION",
        id: 2,
        operation: "x",
        input: { name: "before", list: [1, null] },
      });
  });

  test("output may be changed after it was sent: the worker uses its buffers again", async () => {
    const { broker, worker } = await connect();
    const bytes = Buffer.from("before");
    const output = { job: JobId(1), index: 0, attempt: 1, stream: "stdout", offset: 0, bytes } as const;
    worker.link.send({ type: "OUTPUT", ...output });
    bytes.write("after!");
    await until("the message", () => broker.batches.length > 0);
    const [got] = broker.batches.flat();
    expect(got?.type === "OUTPUT" && Buffer.from(got.bytes).toString()).toBe("before");
  });

  test("what a caller gave and cannot be sent is refused to it, and the link stays", async () => {
    const { broker, worker } = await connect();
    const client = worker.link as unknown as Connection<ToClient, FromClient>;
    const input = { when: new Date(0) };
    expect(() => client.send({ type: "OPERATION", id: 1, operation: "x", input })).toThrow(/OPERATION cannot be sent/);
    expect(() => worker.link.send({ type: "REPLY", id: 1, body: "text" as never })).toThrow(/REPLY cannot be sent/);
    worker.link.send(started(1));
    await until("the message", () => broker.batches.length === 1);
    expect(broker.batches).toEqual([[started(1)]]);
  });

  test("a session takes the connection over", async () => {
    const { broker, worker } = await connect();
    const taken: FromWorker[] = [];
    const session = broker.link.handOver<FromWorker, ToWorker>({
      onMessages: (batch) => taken.push(...batch),
      onClose: (reason) => broker.closes.push(reason),
    });
    worker.link.send(started(1));
    await until("STARTED", () => taken.length === 1);
    session.close(1000, "enough");
    expect(broker.closes).toEqual([{ by: "us", code: 1000, text: "enough" }]);
    expect(broker.batches).toEqual([]);
  });

  test("a handler that throws closes it, and the other end learns why", async () => {
    const { broker, worker } = await connect();
    broker.link.handOver({
      onMessages: () => {
        throw new TypeError("an internal fault");
      },
      onClose: (reason) => broker.closes.push(reason),
    });
    worker.link.send(started(1));
    await until("the end", () => worker.closes.length === 1);
    expect(worker.closes).toMatchObject([{ by: "peer", code: 1011, text: "LABORO_INTERNAL: an internal fault" }]);
    expect(worker.closes[0]?.error).toMatchObject({ code: "LABORO_INTERNAL", message: "an internal fault" });
    expect(broker.closes).toMatchObject([{ by: "us", code: 1011 }]);
  });

  test("what was sent before close() still arrives, what is sent after it does not", async () => {
    const { broker, worker } = await connect();
    worker.link.send(started(1));
    worker.link.close(1000, "done");
    worker.link.send(started(2));
    worker.link.close(1001, "again");
    await until("the end", () => broker.closes.length === 1);
    expect(broker.batches).toEqual([[started(1)]]);
    expect(broker.closes).toEqual([{ by: "peer", code: 1000, text: "done" }]);
    expect(worker.closes).toEqual([{ by: "us", code: 1000, text: "done" }]);
    expect(worker.link.isOpen).toBe(false);
  });

  test("nothing is delivered to an end that has closed", async () => {
    const { broker, worker } = await connect();
    broker.link.send({ type: "ACK", seq: 1 });
    worker.link.close();
    await until("the end", () => broker.closes.length === 1);
    expect(worker.batches).toEqual([]);
  });

  test("a peer that vanishes is the network's doing", async () => {
    const { broker, vanish } = await connect();
    vanish();
    await until("the end", () => broker.closes.length === 1);
    expect(broker.closes[0]).toMatchObject({ by: "network", code: 1006 });
  });

  test("an open one keeps the process running, a closed one leaves nothing", async () => {
    const held = (): number =>
      process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap" || kind === "Timeout").length;
    const before = held();
    const { broker, worker } = await connect();
    worker.link.startHeartbeat(1000);
    broker.link.startHeartbeat(1000);
    expect(held()).toBeGreaterThan(before);
    worker.link.close();
    await until("the end", () => broker.closes.length === 1);
    await until("sockets and timers to go", () => held() <= before);
  });
});
