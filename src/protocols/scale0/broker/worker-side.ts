/** The worker port of a Scale0 door: who is there, and what each of them says. */
import { asLaboroError } from "../../../base/errors.js";
import type { Peer } from "../../zeromq/index.js";
import { type Command, readConnect, readPing } from "../commands.js";
import { type Heard, type Message, readFrames } from "../frames.js";
import { WorkerSession } from "./broker-worker.js";
import { type Parts, pong } from "./parts.js";
import { Prototypes, type Publish } from "./prototype.js";
import type { Voice } from "./voice.js";

const DOUBT_MS = 50;
/** Of a broker; those of ZeroMQ are no longer. */
const LONGEST_IDENTITY = 255;

export class WorkerSide {
  readonly #parts: Parts;
  readonly #voiceOf: (peer: Peer) => Voice;
  readonly #prototypes: Prototypes;
  readonly #voices = new Map<string, Voice>();
  readonly #sessions = new Map<string, WorkerSession>();
  /** Where workers would rather be that asked for another broker, and have not connected here yet. */
  readonly #homes = new Map<string, string>();
  #doubt: NodeJS.Timeout | undefined;

  constructor(parts: Parts, voiceOf: (peer: Peer) => Voice, publish: Publish) {
    this.#parts = parts;
    this.#voiceOf = voiceOf;
    const sessions = {
      of: (peer: Peer) => this.#sessions.get(peer.key),
      begin: (peer: Peer, voice: Voice) => this.#begin(peer, voice),
    };
    this.#prototypes = new Prototypes(sessions, publish, parts.keys);
  }

  joined(peer: Peer): void {
    const voice = this.#voiceOf(peer);
    if (peer.socketType === "REQ") voice.takeTurns();
    this.#voices.set(peer.key, voice);
    this.#sessions.get(peer.key)?.back(voice);
  }

  left(peer: Peer): void {
    this.#voices.get(peer.key)?.end();
    this.#voices.delete(peer.key);
    this.#homes.delete(peer.key);
    this.#sessions.get(peer.key)?.cut();
    // An automatic identity does not come again.
    if (peer.identity[0] === 0) this.#prototypes.gone(peer.key, true);
  }

  /** A connection is over, and it is not known whose: what cannot be said to a worker tells. Once for many at a time. */
  doubted(): void {
    this.#doubt ??= setTimeout(() => {
      this.#doubt = undefined;
      for (const session of [...this.#sessions.values()]) session.probe();
    }, DOUBT_MS);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const voice = this.#voices.get(peer.key);
    if (voice === undefined || voice.ignored) return;
    const heard = readFrames(frames);
    // Where ZeroMQ does not tell, the empty frame in front does.
    if (peer.socketType === "" && heard.kind !== "prototype" && heard.envelope.length > 0) voice.takeTurns();
    voice.heard(heard);
    try {
      this.#hear(peer, voice, heard);
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (code === "LABORO_BAD_INPUT") this.#fault(peer, voice, 400, message);
      else this.#parts.complain(peer.address, message, code);
    }
    if (heard.kind === "prototype") return;
    if (this.#sessions.has(peer.key)) voice.settle("PONG", () => pong(this.#parts.core));
    else voice.settle("FORCENEGOTIATE", () => ({ reason: "this broker does not know you" }));
  }

  #hear(peer: Peer, voice: Voice, heard: Heard): void {
    if (heard.kind === "prototype") {
      this.#prototypes.hear(peer, voice, heard);
    } else if (heard.kind === "malformed") {
      this.#fault(peer, voice, 400, heard.why);
    } else if (heard.kind === "unknown") {
      this.#fault(peer, voice, 501, heard.command);
    } else {
      this.#hearMessage(peer, voice, heard);
      voice.understood();
    }
  }

  #hearMessage(peer: Peer, voice: Voice, message: Message): void {
    const { command, parameters } = message;
    const session = this.#sessions.get(peer.key);
    switch (command) {
      case "CONNECT": {
        const connect = readConnect(parameters);
        this.#prototypes.gone(peer.key, true);
        if (session?.reborn === true) session.forget(false);
        (this.#sessions.get(peer.key) ?? this.#begin(peer, voice)).connect(connect);
        return;
      }
      case "PING": {
        const ping = readPing(parameters);
        if (session !== undefined) session.ping(ping);
        else voice.say("FORCENEGOTIATE", { reason: "this broker does not know you" });
        return;
      }
      case "WORKREPLY":
      case "TASKREPLY":
        session?.reply(message);
        return;
      case "NEEDBROKER": {
        const brokers = this.#parts.brokers.list();
        if (brokers.length === 0) voice.refuse(503, "this broker is to be taken down, and knows no other");
        else voice.say("CHANGEBROKER", { brokers });
        const { preferred_broker: home } = parameters;
        if (typeof home === "string") this.#homes.set(peer.key, home.slice(0, LONGEST_IDENTITY));
        return;
      }
      default:
        this.#fault(peer, voice, 400, misplaced(command, this.#parts.brokers.self.client_uri));
    }
  }

  #begin(peer: Peer, voice: Voice): WorkerSession {
    const session: WorkerSession = new WorkerSession(this.#parts, voice, (orderly) => {
      if (this.#sessions.get(peer.key) !== session) return;
      this.#sessions.delete(peer.key);
      this.#prototypes.gone(peer.key, orderly);
    });
    this.#sessions.set(peer.key, session);
    const home = this.#homes.get(peer.key);
    this.#homes.delete(peer.key);
    if (home !== undefined) session.rather(home);
    return session;
  }

  /** It is told what is wrong, and is forgotten if it was known. */
  #fault(peer: Peer, voice: Voice, code: 400 | 501, why: string): void {
    this.#parts.complain(peer.address, why);
    voice.fault(code, why);
    this.#sessions.get(peer.key)?.forget(false);
  }

  /** Each second, for those of the prototype. */
  pingPrototypes(time: string): void {
    this.#prototypes.ping(time);
  }

  configChanged(): void {
    for (const session of [...this.#sessions.values()]) session.configChanged();
  }

  draining(draining: boolean): void {
    for (const session of [...this.#sessions.values()]) session.draining(draining);
  }

  /** Those that the core does not know have heard nothing of the end. */
  close(): void {
    clearTimeout(this.#doubt);
    for (const session of [...this.#sessions.values()]) session.close("the broker is stopping");
    this.#prototypes.close();
    for (const voice of this.#voices.values()) voice.end();
  }
}

const misplaced = (command: Command, uri: string): string =>
  command === "WORKREQUEST" || command === "TASK"
    ? `${command} goes to the client port, ${uri}`
    : `${command} is what a broker says`;
