/** The streams that a worker has begun to send: each kept until its last packet has gone, or until nobody has asked for one for a while. */
import { keepLatest } from "../../../base/keep-latest.js";
import { packetsOf } from "../stream.js";

const PACKET_BYTES = 8_192;
const IDLE_TIMEOUT_MS = 60_000;
const MAX_STREAMS = 1_000;

interface OpenStream {
  readonly packets: Iterator<Buffer>;
  readonly host: string;
  /** One ahead: whether there is more must be known. */
  next: Buffer | undefined;
  lastUsed: number;
}

export class StreamSources {
  readonly #streams = new Map<string, OpenStream>();
  readonly #now: () => number;
  #handles = 0;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  get size(): number {
    return this.#streams.size;
  }

  /** The first packet of a new one. */
  begin(data: Buffer, host: Buffer, zlib = false): Buffer {
    this.#removeIdle();
    const handle = Buffer.alloc(8);
    handle.writeUInt32LE(++this.#handles >>> 0);
    const packets = packetsOf(data, handle, PACKET_BYTES, zlib);
    const first = packets.next().value ?? Buffer.alloc(0);
    const next = packets.next().value ?? undefined;
    if (next !== undefined) {
      const source = { packets, host: host.toString("latin1"), next, lastUsed: this.#now() };
      this.#streams.set(handle.toString("hex"), source);
      keepLatest(this.#streams, MAX_STREAMS);
    }
    return first;
  }

  /** The next packet, or undefined where the handle means nothing here. */
  nextPacket(host: Buffer | undefined, handle: Buffer | undefined): Buffer | undefined {
    const key = handle?.toString("hex") ?? "";
    const source = this.#streams.get(key);
    if (source === undefined || source.host !== host?.toString("latin1")) return undefined;
    const packet = source.next;
    source.next = source.packets.next().value ?? undefined;
    source.lastUsed = this.#now();
    if (source.next === undefined) this.#streams.delete(key);
    return packet;
  }

  /** The reader of these says that it is still there. False where it reads none. */
  keepAlive(host: Buffer | undefined): boolean {
    const wanted = host?.toString("latin1");
    let found = false;
    for (const source of this.#streams.values()) {
      if (source.host !== wanted) continue;
      source.lastUsed = this.#now();
      found = true;
    }
    return found;
  }

  #removeIdle(): void {
    const old = this.#now() - IDLE_TIMEOUT_MS;
    for (const [key, { lastUsed }] of this.#streams) if (lastUsed < old) this.#streams.delete(key);
  }
}
