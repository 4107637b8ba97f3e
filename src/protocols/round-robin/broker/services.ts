/**
 * Commands as services. `rr.ping` is the byte 01, `rr.stream` 0a; another command is `rr.` and its name, or `rr.0x` and its bytes where
 * they make no name. An operator may map a command to any service. Workers of this protocol offer what begins with `rr.`, since
 * any of them may be given any command. A command that is mapped to another name goes to the workers that offer that service.
 */
import { PING_ARGUMENT, STREAM } from "../frames.js";

const PREFIX = "rr.";
const WORDS: Readonly<Record<string, Buffer>> = { ping: PING_ARGUMENT, stream: STREAM };
/** What has too long a name, or came when as many commands were known as are kept. */
export const OTHER_SERVICE = `${PREFIX}other`;
/** What no message can bring in, so that OTHER is nothing else. */
const RESERVED = new Set(["other", ...Object.keys(WORDS)]);

const MAX_COMMANDS = 256;
const MAX_NAME = 64;
const NAME = /^(?!0x)[\w.-]+$/;

export class CommandServices {
  readonly #services = new Map<string, string>();
  readonly #commands = new Map<string, Buffer>();
  readonly #onNewCommand: () => void;

  /**
   * `mapping` has commands as they are written, `0x0b` or `resize`, and the services for them. `onNewCommand` is called for each new
   * command.
   */
  constructor(mapping: Readonly<Record<string, string>>, onNewCommand: () => void) {
    this.#onNewCommand = onNewCommand;
    for (const word of Object.keys(WORDS)) this.#enter(bytesOf(word), PREFIX + word);
    for (const [command, service] of Object.entries(mapping)) this.#enter(bytesOf(command), service);
  }

  /** What workers of this protocol offer. */
  get offered(): readonly string[] {
    return [...new Set(this.#services.values()), OTHER_SERVICE].filter((service) => service.startsWith(PREFIX));
  }

  serviceOf(command: Buffer): string {
    const key = command.toString("latin1");
    const known = this.#services.get(key);
    if (known !== undefined) return known;
    if (command.length > MAX_NAME || this.#services.size >= MAX_COMMANDS) return OTHER_SERVICE;
    const service = PREFIX + nameOf(command);
    // A copy: the frame is a part of all that was received with it.
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

/** The same name never means two commands. */
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
