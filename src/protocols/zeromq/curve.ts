/**
 * CURVE (CurveZMQ, RFC 26): both ends know the public key of the other. A handshake of four commands makes keys of this
 * connection, so that what was recorded cannot be read later with the lasting keys:
 *
 *   client   HELLO      its new key C', and a box of zeros, which shows that it knows the server's key S
 *   server   WELCOME    in a box: its new key S', and a cookie that the client returns
 *   client   INITIATE   in a box: its lasting key C, a box from C to S' that vouches for C', and its properties
 *   server   READY      in a box: its properties
 *
 * Then each frame is the body of a MESSAGE, in a box. A box has a nonce that only grows, so that none counts twice.
 */
import { randomBytes, timingSafeEqual } from "node:crypto";
import { fromZ85, z85 } from "../../base/curve-key.js";
import { LaboroError } from "../../base/errors.js";
import { KEY_SIZE, type KeyPair, keyPair, newKeyPair, seal, sharedKey, TAG_SIZE, unseal } from "./curve-box.js";
import type { FrameCipher, HandshakeStep, MakeMechanism, Mechanism } from "./mechanism.js";
import type { CurveClient, CurveServer } from "./types.js";
import { encodeFrame, frameHeaderSize, framesIn, makeCommand, writeFrame, zmtpError } from "./zmtp-codec.js";

const NAME = "CURVE";
/** Of a nonce: the end that counts, or that is random. */
const COUNTER_SIZE = 8;
const RANDOM_SIZE = 16;
const COOKIE_SIZE = 96;
const HELLO_SIZE = 2 + 72 + KEY_SIZE + COUNTER_SIZE + 64 + TAG_SIZE;
const HELLO_KEY_AT = 2 + 72;
const WELCOME_SIZE = RANDOM_SIZE + KEY_SIZE + COOKIE_SIZE + TAG_SIZE;
const VOUCH_SIZE = RANDOM_SIZE + 2 * KEY_SIZE + TAG_SIZE;
/** What ZeroMQ answers to a key that is not known. */
const UNKNOWN_KEY = makeCommand("ERROR", Buffer.from("\x03400", "latin1"));

/** For a listener. Its own keys are read once. */
export function curveServer({ publicKey, secretKey, known }: CurveServer): MakeMechanism {
  const own = keyPair(fromZ85(publicKey), fromZ85(secretKey));
  const allowed = new Set(known);
  return () => new ServerSide(own, allowed);
}

export function curveClient({ publicKey, secretKey, serverKey }: CurveClient): MakeMechanism {
  const own = keyPair(fromZ85(publicKey), fromZ85(secretKey));
  const server = fromZ85(serverKey);
  return (properties) => new ClientSide(own, server, properties);
}

/** What the server keeps between HELLO and INITIATE. */
interface Welcomed {
  /** C' of the client. */
  readonly key: Buffer;
  readonly cookie: Buffer;
  readonly session: KeyPair;
}

class ServerSide implements Mechanism {
  readonly name = NAME;
  readonly isServer = true;
  readonly #own: KeyPair;
  readonly #known: ReadonlySet<string>;
  #welcomed: Welcomed | undefined;
  #cipher: Cipher | undefined;

  constructor(own: KeyPair, known: ReadonlySet<string>) {
    this.#own = own;
    this.#known = known;
  }

  get cipher(): FrameCipher | undefined {
    return this.#cipher;
  }

  receive(name: string, body: Buffer): HandshakeStep {
    const welcomed = this.#welcomed;
    if (welcomed === undefined) {
      if (name !== "HELLO" || body.length !== HELLO_SIZE) throw unexpected(name, "HELLO");
      return { reply: this.#welcome(body) };
    }
    if (name !== "INITIATE" || body.length < COOKIE_SIZE + COUNTER_SIZE) throw unexpected(name, "INITIATE");
    if (this.#cipher !== undefined || !timingSafeEqual(body.subarray(0, COOKIE_SIZE), welcomed.cookie))
      throw zmtpError("a cookie of another connection");
    return this.#initiated(welcomed, body.subarray(COOKIE_SIZE));
  }

  #welcome(body: Buffer): Buffer {
    if (body[0] !== 1 || body[1] !== 0) throw zmtpError(`version ${body[0]}.${body[1]} of CURVE, expected 1.0`);
    const key = body.subarray(HELLO_KEY_AT, HELLO_KEY_AT + KEY_SIZE);
    const shared = sharedKey(this.#own.secretKey, key);
    const [counter, box] = split(body.subarray(HELLO_KEY_AT + KEY_SIZE), COUNTER_SIZE);
    if (unseal(shared, nonce("CurveZMQHELLO---", counter), box) === undefined)
      throw new LaboroError("LABORO_BAD_TOKEN", "the peer does not know the CURVE key of this server");
    const session = newKeyPair();
    const cookie = randomBytes(COOKIE_SIZE);
    this.#welcomed = { key: Buffer.from(key), cookie, session };
    const random = randomBytes(RANDOM_SIZE);
    const plain = Buffer.concat([session.publicKey, cookie]);
    return makeCommand("WELCOME", Buffer.concat([random, seal(shared, nonce("WELCOME-", random), plain)]));
  }

  #initiated({ key: clientKey, session }: Welcomed, sealed: Buffer): HandshakeStep {
    const shared = sharedKey(session.secretKey, clientKey);
    const [counter, box] = split(sealed, COUNTER_SIZE);
    const plain = unseal(shared, nonce("CurveZMQINITIATE", counter), box);
    if (plain === undefined || plain.length < KEY_SIZE + VOUCH_SIZE) throw altered("INITIATE");
    const [key, rest] = split(plain, KEY_SIZE);
    const [vouch, properties] = split(rest, VOUCH_SIZE);
    const [random, vouchBox] = split(vouch, RANDOM_SIZE);
    const vouched = unseal(sharedKey(session.secretKey, key), nonce("VOUCH---", random), vouchBox);
    if (vouched === undefined || !timingSafeEqual(vouched, Buffer.concat([clientKey, this.#own.publicKey])))
      throw altered("INITIATE");
    const text = z85(key);
    if (!this.#known.has(text)) {
      const why = `the CURVE key ${text} is unknown: add it to the known keys`;
      return { reply: UNKNOWN_KEY, refused: new LaboroError("LABORO_BAD_TOKEN", why) };
    }
    this.#cipher = new Cipher(shared, { own: "S", peer: "C" }, counter);
    return { peer: properties };
  }

  finish(properties: Buffer): Buffer {
    if (this.#cipher === undefined) throw zmtpError("a handshake without INITIATE");
    return makeCommand("READY", this.#cipher.box("CurveZMQREADY---", properties));
  }
}

class ClientSide implements Mechanism {
  readonly name = NAME;
  readonly isServer = false;
  readonly #own: KeyPair;
  readonly #server: Buffer;
  readonly #properties: () => Buffer;
  readonly #session = newKeyPair();
  readonly #hello: Uint8Array;
  #cipher: Cipher | undefined;

  constructor(own: KeyPair, server: Buffer, properties: () => Buffer) {
    this.#own = own;
    this.#server = server;
    this.#properties = properties;
    this.#hello = sharedKey(this.#session.secretKey, server);
  }

  get cipher(): FrameCipher | undefined {
    return this.#cipher;
  }

  begin(): Buffer {
    const counter = encodeCounter(1);
    const head = Buffer.alloc(HELLO_KEY_AT);
    head[0] = 1;
    const box = seal(this.#hello, nonce("CurveZMQHELLO---", counter), Buffer.alloc(64));
    return makeCommand("HELLO", Buffer.concat([head, this.#session.publicKey, counter, box]));
  }

  receive(name: string, body: Buffer): HandshakeStep {
    const cipher = this.#cipher;
    if (cipher === undefined) {
      if (name !== "WELCOME" || body.length !== WELCOME_SIZE) throw unexpected(name, "WELCOME");
      return { reply: this.#initiate(body) };
    }
    if (name !== "READY" || body.length < COUNTER_SIZE) throw unexpected(name, "READY");
    return { peer: cipher.unbox("CurveZMQREADY---", body, "READY") };
  }

  #initiate(welcome: Buffer): Buffer {
    const [random, box] = split(welcome, RANDOM_SIZE);
    const plain = unseal(this.#hello, nonce("WELCOME-", random), box);
    if (plain === undefined) throw altered("WELCOME");
    const [sessionKey, cookie] = split(plain, KEY_SIZE);
    const vouchRandom = randomBytes(RANDOM_SIZE);
    const vouch = seal(
      sharedKey(this.#own.secretKey, sessionKey),
      nonce("VOUCH---", vouchRandom),
      Buffer.concat([this.#session.publicKey, this.#server]),
    );
    const cipher = new Cipher(sharedKey(this.#session.secretKey, sessionKey), { own: "C", peer: "S" });
    this.#cipher = cipher;
    const content = Buffer.concat([this.#own.publicKey, vouchRandom, vouch, this.#properties()]);
    return makeCommand("INITIATE", Buffer.concat([cookie, cipher.box("CurveZMQINITIATE", content)]));
  }
}

const MESSAGE = Buffer.from("\x07MESSAGE", "latin1");
const MORE = 1;
/** In a box. On the wire it is another bit. */
const COMMAND_IN_BOX = 2;
const COMMAND = 4;
const BOX_AT = MESSAGE.length + COUNTER_SIZE;

/** The keys of one connection. Each end counts its boxes. */
class Cipher implements FrameCipher {
  readonly #key: Uint8Array;
  readonly #prefixes: { readonly own: string; readonly peer: string };
  /** The client has used 1 for its HELLO. */
  #sent = 1;
  #received: bigint;

  constructor(key: Uint8Array, ends: { readonly own: string; readonly peer: string }, received?: Buffer) {
    this.#key = key;
    this.#prefixes = { own: `CurveZMQMESSAGE${ends.own}`, peer: `CurveZMQMESSAGE${ends.peer}` };
    this.#received = received?.readBigUInt64BE() ?? 0n;
  }

  /** With its counter before it. */
  box(prefix: string, plain: Uint8Array): Buffer {
    const counter = encodeCounter(++this.#sent);
    return Buffer.concat([counter, seal(this.#key, nonce(prefix, counter), plain)]);
  }

  unbox(prefix: string, bytes: Buffer, what: string): Buffer {
    const [counter, box] = split(bytes, COUNTER_SIZE);
    const count = counter.readBigUInt64BE();
    const plain = count > this.#received ? unseal(this.#key, nonce(prefix, counter), box) : undefined;
    if (plain === undefined) throw altered(what);
    this.#received = count;
    return plain;
  }

  seal(frames: Buffer): Buffer {
    const sealed: Buffer[] = [];
    for (const { flags, body } of framesIn(frames)) {
      const plain = Buffer.allocUnsafe(1 + body.length);
      plain[0] = (flags & MORE) | ((flags & COMMAND) === 0 ? 0 : COMMAND_IN_BOX);
      plain.set(body, 1);
      sealed.push(encodeFrame(0, Buffer.concat([MESSAGE, this.box(this.#prefixes.own, plain)])));
    }
    return sealed.length === 1 ? (sealed[0] as Buffer) : Buffer.concat(sealed);
  }

  open(body: Buffer): Buffer {
    if (body.length < BOX_AT + TAG_SIZE + 1 || !body.subarray(0, MESSAGE.length).equals(MESSAGE))
      throw zmtpError("a frame that is not encrypted");
    const plain = this.unbox(this.#prefixes.peer, body.subarray(MESSAGE.length), "MESSAGE");
    const flags = plain[0] as number;
    const content = plain.subarray(1);
    const frame = Buffer.allocUnsafe(frameHeaderSize(content.length) + content.length);
    writeFrame(frame, 0, (flags & MORE) | ((flags & COMMAND_IN_BOX) === 0 ? 0 : COMMAND), content);
    return frame;
  }
}

const nonce = (prefix: string, end: Uint8Array): Uint8Array => Buffer.concat([Buffer.from(prefix, "latin1"), end]);

function encodeCounter(count: number): Buffer {
  const bytes = Buffer.alloc(COUNTER_SIZE);
  bytes.writeBigUInt64BE(BigInt(count));
  return bytes;
}

const split = (bytes: Buffer, at: number): readonly [Buffer, Buffer] => [bytes.subarray(0, at), bytes.subarray(at)];

const unexpected = (name: string, expected: string): Error =>
  zmtpError(`${JSON.stringify(name)} where ${expected} of CURVE is expected`);

const altered = (what: string): Error =>
  new LaboroError("LABORO_BAD_TOKEN", `a ${what} of CURVE that was altered, repeated, or made with other keys`);
