/** The client port of a Scale0 listener: each request gets one answer or refusal. */
import { isUtf8 } from "node:buffer";
import { asLaboroError, type ErrorCode } from "../../../base/errors.js";
import type { RequestId } from "../../../model/ids.js";
import type { Peer } from "../../zeromq/index.js";
import {
  type Command,
  type DisconnectCode,
  type MessageIdParameter,
  type Parameters,
  readMessageId,
  readPing,
  readWorkRequest,
  replyCommand,
  workCommandOf,
} from "../commands.js";
import { type Envelope, faultOf, joined, type ReceivedFrames, readFrames } from "../frames.js";
import { ClientRequest, clockError, pong, type Scale0Context, WorkerReply } from "./context.js";
import type { PeerSession } from "./peer-session.js";

/** Requests without an answer, of all clients and of one, and their bytes. */
const MAX_REQUESTS = 100_000;
const MAX_REQUESTS_PER_CLIENT = 20_000;
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_BYTES_PER_CLIENT = 128 * 1024 * 1024;

interface ConnectedClient {
  peerSession: PeerSession;
  /** It may reconnect for its answers. */
  disconnected: boolean;
  /** Each with the function that ends it. */
  readonly requests: Map<RequestId, () => void>;
  bytes: number;
}

type ReceivedMessage = Extract<ReceivedFrames, { kind: "message" }>;

export class ClientConnections {
  readonly #context: Scale0Context;
  readonly #openSession: (peer: Peer) => PeerSession;
  readonly #clients = new Map<string, ConnectedClient>();
  #requests = 0;
  #bytes = 0;

  constructor(context: Scale0Context, openSession: (peer: Peer) => PeerSession) {
    this.#context = context;
    this.#openSession = openSession;
  }

  joined(peer: Peer): void {
    const peerSession = this.#openSession(peer);
    const known = this.#clients.get(peer.key);
    if (known === undefined)
      this.#clients.set(peer.key, { peerSession, disconnected: false, requests: new Map(), bytes: 0 });
    else Object.assign(known, { peerSession, disconnected: false });
  }

  left(peer: Peer): void {
    const client = this.#clients.get(peer.key);
    if (client === undefined) return;
    client.peerSession.end();
    client.disconnected = true;
    // A client with its own identity may reconnect for its answers.
    if (peer.identity[0] === 0) {
      for (const [request, done] of [...client.requests]) {
        this.#context.core.requests.cancel(request);
        done();
      }
    }
    this.#removeDisconnected(peer.key);
  }

  #removeDisconnected(key: string): void {
    const client = this.#clients.get(key);
    if (client?.disconnected === true && client.requests.size === 0) this.#clients.delete(key);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const client = this.#clients.get(peer.key);
    if (client === undefined || client.peerSession.ignored) return;
    const received = readFrames(frames);
    client.peerSession.received(received);
    if (received.kind === "message") this.#onMessage(client, received);
    else client.peerSession.sendFault(...faultOf(received));
  }

  /** A message over the limit: a request is refused, any other message is a protocol error. */
  dropped(peer: Peer, head: readonly Buffer[], why: string): void {
    const client = this.#clients.get(peer.key);
    if (client === undefined || client.peerSession.ignored) return;
    const received = readFrames(head);
    client.peerSession.received(received);
    const named = received.kind === "message" ? messageIdOf(received) : {};
    if (Object.keys(named).length === 0) client.peerSession.sendFault(400, why);
    else client.peerSession.sendDisconnectError(400, why, named);
  }

  #onMessage(client: ConnectedClient, message: ReceivedMessage): void {
    try {
      this.#handleCommand(client, message);
      client.peerSession.resetFaults();
    } catch (cause) {
      const { code, message: why } = asLaboroError(cause);
      const named = messageIdOf(message);
      if (code !== "LABORO_BAD_INPUT") {
        this.#context.onPeerError(client.peerSession.peer.address, why, code);
        this.#refuse(client, named, message.envelope, 503, why);
      } else if (Object.keys(named).length === 0) {
        client.peerSession.sendFault(400, why);
      } else {
        client.peerSession.sendDisconnectError(400, why, named);
      }
    }
  }

  #handleCommand(client: ConnectedClient, message: ReceivedMessage): void {
    const { peerSession } = client;
    const { core, brokers } = this.#context;
    switch (message.command) {
      case "PING": {
        const { time } = readPing(message.parameters);
        const fault = clockError(core, time);
        if (fault !== undefined) peerSession.sendDisconnectError(409, fault);
        else peerSession.send("PONG", pong(core, time));
        return;
      }
      case "WORKREQUEST":
      case "TASK":
        this.#request(client, message);
        return;
      case "NEEDBROKER":
        peerSession.sendBrokers(brokers.list());
        return;
      default:
        client.peerSession.sendFault(400, misplaced(message.command, brokers.self.worker_uri));
    }
  }

  #request(client: ConnectedClient, message: ReceivedMessage): void {
    const { core, pool } = this.#context;
    const { command, parameters, body, envelope, inline } = message;
    const { service, timeoutMs, retry } = readWorkRequest(parameters);
    const named = readMessageId(command, parameters);
    const whole = joined(body);
    const refusal = this.#refusal(client, whole.length);
    if (refusal !== undefined) {
      this.#refuse(client, named, envelope, ...refusal);
      return;
    }
    const word = workCommandOf(command);
    const attachment = new ClientRequest(client.peerSession.name, named, word, parameters, body);
    let id: RequestId | undefined;
    let over = false;
    this.#requests++;
    this.#bytes += whole.length;
    client.bytes += whole.length;
    const done = (): void => {
      over = true;
      this.#requests--;
      this.#bytes -= whole.length;
      client.bytes -= whole.length;
      if (id !== undefined) client.requests.delete(id);
      this.#removeDisconnected(client.peerSession.peer.key);
    };
    // A refusal may happen before `add` returns.
    id = core.requests.add({ service, pool, body: whole, timeoutMs, retry, attachment }, (answer, error, more) => {
      done();
      if (error === undefined || error === "LABORO_SERVICE_FAILED") {
        const answered = more instanceof WorkerReply ? more : new WorkerReply([answer], error);
        const failed = answered.error === undefined ? {} : { error: answered.error };
        const inlineBody = inline === true ? bodyParameter(answered.body) : {};
        client.peerSession.send(replyCommand(word), { ...named, ...failed, ...inlineBody }, answered.body, envelope);
      } else {
        this.#refuse(client, named, envelope, codeOf(error), Buffer.from(answer).toString() || error);
      }
    });
    if (!over) client.requests.set(id, done);
  }

  /** Why a request is refused, from anyone or from this client. */
  #refusal({ requests, bytes }: ConnectedClient, more: number): readonly [DisconnectCode, string] | undefined {
    const { core, brokers } = this.#context;
    if (core.maintenance.draining) {
      const why = "this broker is to be taken down";
      return brokers.others().length > 0 ? [301, why] : [503, why];
    }
    if (this.#requests >= MAX_REQUESTS || this.#bytes + more > MAX_BYTES)
      return [503, "too many requests are in progress"];
    if (bytes + more > MAX_BYTES_PER_CLIENT) return [503, "too many bytes of your requests are in progress"];
    return requests.size >= MAX_REQUESTS_PER_CLIENT
      ? [503, `${MAX_REQUESTS_PER_CLIENT} of your requests are in progress`]
      : undefined;
  }

  /** About one request. A redirected client gets CHANGEBROKER, unless it can take only one answer. */
  #refuse(
    client: ConnectedClient,
    named: MessageIdParameter,
    envelope: Envelope,
    code: DisconnectCode,
    why: string,
  ): void {
    client.peerSession.sendDisconnectError(code, why, named, envelope);
    if (code === 301 && envelope.length === 0)
      client.peerSession.send("CHANGEBROKER", { brokers: this.#context.brokers.others() });
  }

  /** A REQ socket would take CHANGEBROKER for the answer to its next request. */
  setDraining(draining: boolean): void {
    const brokers = draining ? this.#context.brokers.others() : [];
    if (brokers.length === 0) return;
    for (const { peerSession } of this.#clients.values())
      if (!peerSession.usesReqSocket) peerSession.send("CHANGEBROKER", { brokers });
  }

  close(): void {
    const brokers = this.#context.brokers.others();
    for (const { peerSession } of this.#clients.values()) {
      if (!peerSession.usesReqSocket) {
        peerSession.sendDisconnectError(brokers.length > 0 ? 301 : 444, "the broker is stopping");
        if (brokers.length > 0) peerSession.send("CHANGEBROKER", { brokers });
      }
      peerSession.end();
    }
  }
}

const CODE_OF: Partial<Record<ErrorCode, DisconnectCode>> = {
  LABORO_DEADLINE: 504,
  LABORO_WORKER_LOST: 504,
  LABORO_BODY_TOO_LARGE: 400,
};

const codeOf = (error: ErrorCode): DisconnectCode => CODE_OF[error] ?? 503;

function messageIdOf({ command, parameters }: ReceivedMessage): MessageIdParameter {
  try {
    return readMessageId(command, parameters);
  } catch {
    return {};
  }
}

/** For a client that put the body of its request there. Bytes that are not text are in the frames only. */
function bodyParameter(frames: readonly Uint8Array[]): Parameters {
  const whole = joined(frames);
  return isUtf8(whole) ? { body: Buffer.from(whole).toString() } : {};
}

const misplaced = (command: Command, uri: string): string =>
  command === "CONNECT" || command.endsWith("REPLY")
    ? `${command} goes to the worker port, ${uri}`
    : `${command} is sent by brokers only`;
