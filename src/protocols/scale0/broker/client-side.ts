/** The client port of a Scale0 door: requests come in, answers and refusals go out, one for each. */
import { isUtf8 } from "node:buffer";
import { now } from "../../../base/clock.js";
import type { ErrorCode } from "../../../base/errors.js";
import { asLaboroError } from "../../../base/errors.js";
import type { RequestId } from "../../../model/ids.js";
import type { Peer } from "../../zeromq/index.js";
import {
  type Code,
  type Command,
  type Named,
  type Parameters,
  readMessageId,
  readPing,
  readWorkRequest,
  replyTo,
  wordOf,
} from "../commands.js";
import { type Envelope, type Heard, joined, readFrames } from "../frames.js";
import { Answered, Asked, clockFault, type Parts, pong } from "./parts.js";
import type { Voice } from "./voice.js";

/** Requests under way, of all clients together and of one, and bytes of them. */
const MOST_REQUESTS = 100_000;
const MOST_OF_ONE = 20_000;
const MOST_BYTES = 512 * 1024 * 1024;

interface Client {
  voice: Voice;
  /** Its connection is over, and it may come back for its answers. */
  away: boolean;
  /** Each with what ends it. */
  readonly requests: Map<RequestId, () => void>;
}

type Asking = Extract<Heard, { kind: "message" }>;

export class ClientSide {
  readonly #parts: Parts;
  readonly #voiceOf: (peer: Peer) => Voice;
  readonly #clients = new Map<string, Client>();
  #requests = 0;
  #bytes = 0;

  constructor(parts: Parts, voiceOf: (peer: Peer) => Voice) {
    this.#parts = parts;
    this.#voiceOf = voiceOf;
  }

  joined(peer: Peer): void {
    const voice = this.#voiceOf(peer);
    const known = this.#clients.get(peer.key);
    if (known === undefined) this.#clients.set(peer.key, { voice, away: false, requests: new Map() });
    else Object.assign(known, { voice, away: false });
  }

  left(peer: Peer): void {
    const client = this.#clients.get(peer.key);
    if (client === undefined) return;
    client.voice.end();
    client.away = true;
    // One that has named itself may come back for its answers.
    if (peer.identity[0] === 0) {
      for (const [request, done] of [...client.requests]) {
        this.#parts.core.forget(request);
        done();
      }
    }
    this.#forgetAway(peer.key);
  }

  #forgetAway(key: string): void {
    const client = this.#clients.get(key);
    if (client?.away === true && client.requests.size === 0) this.#clients.delete(key);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const client = this.#clients.get(peer.key);
    if (client === undefined || client.voice.ignored) return;
    const heard = readFrames(frames);
    client.voice.heard(heard);
    if (heard.kind === "message") this.#hear(client, heard);
    else if (heard.kind === "malformed") this.#fault(client, 400, heard.why);
    else if (heard.kind === "unknown") this.#fault(client, 501, heard.command);
    else this.#fault(client, 501, `${heard.word} goes to the worker port`);
  }

  #hear(client: Client, message: Asking): void {
    try {
      this.#answer(client, message);
      client.voice.understood();
    } catch (cause) {
      const { code, message: why } = asLaboroError(cause);
      const named = nameOf(message);
      if (code !== "LABORO_BAD_INPUT") {
        this.#parts.complain(client.voice.peer.address, why, code);
        this.#refuse(client, named, message.envelope, 503, why);
      } else if (Object.keys(named).length === 0) {
        this.#fault(client, 400, why);
      } else {
        client.voice.refuse(400, why, named);
      }
    }
  }

  #answer(client: Client, message: Asking): void {
    const { voice } = client;
    const { core, brokers } = this.#parts;
    switch (message.command) {
      case "PING": {
        const { time } = readPing(message.parameters);
        const fault = clockFault(core, time, now());
        if (fault !== undefined) voice.refuse(409, fault);
        else voice.say("PONG", pong(core, time));
        return;
      }
      case "WORKREQUEST":
      case "TASK":
        this.#request(client, message);
        return;
      case "NEEDBROKER":
        if (brokers.list().length === 0) voice.refuse(503, "this broker is to be taken down, and knows no other");
        else voice.say("CHANGEBROKER", { brokers: brokers.list() });
        return;
      default:
        this.#fault(client, 400, misplaced(message.command, brokers.self.worker_uri));
    }
  }

  #request(client: Client, message: Asking): void {
    const { core, pool } = this.#parts;
    const { command, parameters, body, envelope, inline } = message;
    const { service, timeoutMs, retry } = readWorkRequest(parameters);
    const named = readMessageId(command, parameters);
    const refusal = this.#refusal(client);
    if (refusal !== undefined) {
      this.#refuse(client, named, envelope, ...refusal);
      return;
    }
    const whole = joined(body);
    const word = wordOf(command);
    const attachment = new Asked(client.voice.name, named, word, parameters, body);
    let id: RequestId | undefined;
    let over = false;
    this.#requests++;
    this.#bytes += whole.length;
    const done = (): void => {
      over = true;
      this.#requests--;
      this.#bytes -= whole.length;
      if (id !== undefined) client.requests.delete(id);
      this.#forgetAway(client.voice.peer.key);
    };
    // A refusal may come before the number is known here.
    id = core.request({ service, pool, body: whole, timeoutMs, retry, attachment }, (answer, error, more) => {
      done();
      if (error === undefined || error === "LABORO_SERVICE_FAILED") {
        const answered = more instanceof Answered ? more : new Answered([answer], error);
        const failed = answered.error === undefined ? {} : { error: answered.error };
        const shown = inline === true ? bodyAmong(answered.body) : {};
        client.voice.say(replyTo(word), { ...named, ...failed, ...shown }, answered.body, envelope);
      } else {
        this.#refuse(client, named, envelope, codeOf(error), Buffer.from(answer).toString() || error);
      }
    });
    if (!over) client.requests.set(id, done);
  }

  /** Why nothing is taken, from anyone or from this client. */
  #refusal({ requests }: Client): readonly [Code, string] | undefined {
    const { core, brokers } = this.#parts;
    if (core.maintenance.draining) {
      const why = "this broker is to be taken down";
      return brokers.others().length > 0 ? [301, why] : [503, why];
    }
    if (this.#requests >= MOST_REQUESTS || this.#bytes >= MOST_BYTES) return [503, "too many requests are under way"];
    return requests.size >= MOST_OF_ONE ? [503, `${MOST_OF_ONE} of your requests are under way`] : undefined;
  }

  /** About one request. A client that has to go is told where, unless it can take only one answer. */
  #refuse(client: Client, named: Named, envelope: Envelope, code: Code, why: string): void {
    client.voice.refuse(code, why, named, envelope);
    if (code === 301 && envelope.length === 0)
      client.voice.say("CHANGEBROKER", { brokers: this.#parts.brokers.others() });
  }

  #fault(client: Client, code: 400 | 501, why: string): void {
    this.#parts.complain(client.voice.peer.address, why);
    client.voice.fault(code, why);
  }

  /** Clients are told where to go. A REQ socket would take it for the answer to its next question: it hears of it then. */
  draining(draining: boolean): void {
    const brokers = draining ? this.#parts.brokers.others() : [];
    if (brokers.length === 0) return;
    for (const { voice } of this.#clients.values()) if (!voice.takesOne) voice.say("CHANGEBROKER", { brokers });
  }

  close(): void {
    const brokers = this.#parts.brokers.others();
    for (const { voice } of this.#clients.values()) {
      if (!voice.takesOne) {
        voice.refuse(brokers.length > 0 ? 301 : 444, "the broker is stopping");
        if (brokers.length > 0) voice.say("CHANGEBROKER", { brokers });
      }
      voice.end();
    }
  }
}

const CODE_OF: Partial<Record<ErrorCode, Code>> = {
  LABORO_DEADLINE: 504,
  LABORO_WORKER_LOST: 504,
  LABORO_BODY_TOO_LARGE: 400,
};

const codeOf = (error: ErrorCode): Code => CODE_OF[error] ?? 503;

function nameOf({ command, parameters }: Asking): Named {
  try {
    return readMessageId(command, parameters);
  } catch {
    // It is what is wrong.
    return {};
  }
}

/** For who has put the body of the request there; bytes that are no text are in the frames alone. */
function bodyAmong(frames: readonly Uint8Array[]): Parameters {
  const whole = joined(frames);
  return isUtf8(whole) ? { body: Buffer.from(whole).toString() } : {};
}

const misplaced = (command: Command, uri: string): string =>
  command === "CONNECT" || command.endsWith("REPLY")
    ? `${command} goes to the worker port, ${uri}`
    : `${command} is what a broker says`;
