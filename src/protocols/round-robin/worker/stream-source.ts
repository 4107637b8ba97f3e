/** The streams that a worker has begun to send: each kept until its last packet has gone, or until nobody has asked for one for a while. */
import { packetsOf } from "../stream.js";

const PACKET_BYTES = 8_192;
const FORGOTTEN_MS = 60_000;
const MOST_STREAMS = 1_000;

interface Source {
  readonly packets: Iterator<Buffer>;
  readonly host: string;
  /** One ahead: whether there is more must be known. */
  next: Buffer | undefined;
  touched: number;
}

export class StreamSources {
  readonly #open = new Map<string, Source>();
  readonly #now: () => number;
  #handles = 0;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The first packet of a new one. */
  begin(data: Buffer, host: Buffer, zlib = false): Buffer {
    this.#forgetOld();
    const handle = Buffer.alloc(8);
    handle.writeUInt32LE(++this.#handles >>> 0);
    const packets = packetsOf(data, handle, PACKET_BYTES, zlib);
    const first = packets.next().value ?? Buffer.alloc(0);
    const next = packets.next().value ?? undefined;
    if (next !== undefined) {
      const source = { packets, host: host.toString("latin1"), next, touched: this.#now() };
      this.#open.set(handle.toString("hex"), source);
      const [oldest] = this.#open.keys();
      if (this.#open.size > MOST_STREAMS && oldest !== undefined) this.#open.delete(oldest);
    }
    return first;
  }

  /** The next packet, or undefined where the handle means nothing here. */
  more(host: Buffer | undefined, handle: Buffer | undefined): Buffer | undefined {
    const key = handle?.toString("hex") ?? "";
    const source = this.#open.get(key);
    if (source === undefined || source.host !== host?.toString("latin1")) return undefined;
    const packet = source.next;
    source.next = source.packets.next().value ?? undefined;
    source.touched = this.#now();
    if (source.next === undefined) this.#open.delete(key);
    return packet;
  }

  /** The reader of these says that it is still there. False where it reads none. */
  ongoing(host: Buffer | undefined): boolean {
    const wanted = host?.toString("latin1");
    let found = false;
    for (const source of this.#open.values()) {
      if (source.host !== wanted) continue;
      source.touched = this.#now();
      found = true;
    }
    return found;
  }

  #forgetOld(): void {
    const old = this.#now() - FORGOTTEN_MS;
    for (const [key, { touched }] of this.#open) if (touched < old) this.#open.delete(key);
  }
}
