/**
 * Commands as services. `rr.ping` is the byte 01, `rr.stream` 0a. Other commands are `rr.` and the name, or `rr.0x` and
 * the bytes where they are not a name. Workers of this protocol offer all services that begin with `rr.`, because any
 * of them may get any command. An operator may map a command to another service, which other workers offer.
 */
import { PING_ARGUMENT, STREAM } from "../frames.js";

const PREFIX = "rr.";
const WORDS: Readonly<Record<string, Buffer>> = { ping: PING_ARGUMENT, stream: STREAM };
/** Commands with a too long name, or beyond MAX_COMMANDS. */
export const OTHER_SERVICE = `${PREFIX}other`;
/** Names that are never derived from a command. */
const RESERVED = new Set(["other", ...Object.keys(WORDS)]);

const MAX_COMMANDS = 256;
const MAX_NAME = 64;
const NAME = /^(?!0x)[\w.-]+$/;

export class CommandServices {
  readonly #services = new Map<string, string>();
  readonly #commands = new Map<string, Buffer>();
  readonly #onNewCommand: () => void;

  /** `mapping`: services by command, written as `0x0b` or `resize`. */
  constructor(mapping: Readonly<Record<string, string>>, onNewCommand: () => void) {
    this.#onNewCommand = onNewCommand;
    for (const word of Object.keys(WORDS)) this.#enter(bytesOf(word), PREFIX + word);
    for (const [command, service] of Object.entries(mapping)) this.#enter(bytesOf(command), service);
  }

  get offered(): readonly string[] {
    return [...new Set(this.#services.values()), OTHER_SERVICE].filter((service) => service.startsWith(PREFIX));
  }

  serviceOf(command: Buffer): string {
    const key = command.toString("latin1");
    const known = this.#services.get(key);
    if (known !== undefined) return known;
    if (command.length > MAX_NAME || this.#services.size >= MAX_COMMANDS) return OTHER_SERVICE;
    const service = PREFIX + nameOf(command);
    // A copy, because the frame is a view into a larger chunk.
    this.#enter(Buffer.from(command), service);
    this.#onNewCommand();
    return service;
  }

  commandOf(service: string): Buffer | undefined {
    return this.#commands.get(service);
  }

  #enter(command: Buffer, service: string): void {
    this.#services.set(command.toString("latin1"), service);
    this.#commands.set(service, command);
  }
}

/** One name never means two commands. */
function nameOf(command: Buffer): string {
  const text = command.toString("latin1");
  const plain = NAME.test(text) && !RESERVED.has(text);
  return plain ? text : `0x${command.toString("hex")}`;
}

function bytesOf(name: string): Buffer {
  const word = WORDS[name];
  if (word !== undefined) return word;
  return /^0x([\da-f]{2})+$/i.test(name) ? Buffer.from(name.slice(2), "hex") : Buffer.from(name, "latin1");
}
