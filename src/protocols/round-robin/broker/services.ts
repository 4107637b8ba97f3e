/**
 * Commands as services. `rr.ping` is the byte 01, `rr.stream` 0a. Other commands are `rr.` and the name, or `rr.0x` and
 * the bytes where they are not a name. Workers of this protocol offer all services that begin with `rr.`, because any
 * of them may get any command. An operator may map a command to another service, which other workers offer.
 *
 * The commands that clients have used are stored, because a job for such a service continues after a restart.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import { PING_ARGUMENT, printable, STREAM } from "../frames.js";

const PREFIX = "rr.";
const WORDS: Readonly<Record<string, Buffer>> = { ping: PING_ARGUMENT, stream: STREAM };
/** Commands with a too long name, or beyond MAX_COMMANDS. */
export const OTHER_SERVICE = `${PREFIX}other`;
/** Names that are never derived from a command. */
const RESERVED = new Set(["other", ...Object.keys(WORDS)]);

const MAX_COMMANDS = 256;
const MAX_NAME = 64;
const NAME = /^(?!0x)[\w.-]+$/;

const AREA = "round-robin commands";
const RETENTION_MS = 30 * 24 * 3_600_000;

/** The stored commands. One that was not used for long is removed. */
export async function loadCommands(core: Core): Promise<Buffer[]> {
  const old = now() - RETENTION_MS;
  const all = await core.keptTexts(AREA);
  for (const { key, updatedAt } of all) if (updatedAt <= old) core.put(AREA, key, null).catch(() => {});
  return all.filter(({ updatedAt }) => updatedAt > old).map(({ key }) => Buffer.from(key, "hex"));
}

export function storeCommand(core: Core, log: Log, command: Buffer): void {
  core.put(AREA, command.toString("hex"), "").catch((cause: unknown) => {
    const { code, message } = asLaboroError(cause);
    log.info({ code }, `the command ${printable(command)} is not stored: ${message}`);
  });
}

export class CommandServices {
  readonly #services = new Map<string, string>();
  readonly #commands = new Map<string, Buffer>();
  /** Loaded ones that were not used since the start. */
  readonly #unused = new Set<string>();
  readonly #onFirstUse: (command: Buffer) => void;

  /**
   * `mapping`: services by command, written as `0x0b` or `resize`. `onFirstUse` is called when a client uses a command
   * for the first time, and a loaded one for the first time since the start.
   */
  constructor(
    mapping: Readonly<Record<string, string>>,
    loaded: readonly Buffer[],
    onFirstUse: (command: Buffer) => void,
  ) {
    this.#onFirstUse = onFirstUse;
    for (const word of Object.keys(WORDS)) this.#enter(bytesOf(word), PREFIX + word);
    for (const [command, service] of Object.entries(mapping)) this.#enter(bytesOf(command), service);
    for (const command of loaded) {
      const key = command.toString("latin1");
      if (this.#services.has(key) || this.#services.size >= MAX_COMMANDS) continue;
      this.#unused.add(key);
      this.#enter(command, PREFIX + nameOf(command));
    }
  }

  get offered(): readonly string[] {
    return [...new Set(this.#services.values()), OTHER_SERVICE].filter((service) => service.startsWith(PREFIX));
  }

  serviceOf(command: Buffer): string {
    const key = command.toString("latin1");
    const known = this.#services.get(key);
    if (known !== undefined) {
      if (this.#unused.delete(key)) this.#onFirstUse(command);
      return known;
    }
    if (command.length > MAX_NAME || this.#services.size >= MAX_COMMANDS) return OTHER_SERVICE;
    const service = PREFIX + nameOf(command);
    // A copy, because the frame is a view into a larger chunk.
    this.#enter(Buffer.from(command), service);
    this.#onFirstUse(command);
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
