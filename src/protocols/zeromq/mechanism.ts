/**
 * The security mechanisms of ZMTP (RFC 23): the commands of a handshake, and what becomes of the frames that follow it.
 * CURVE is in curve.ts. Each connection has its own.
 */
import { makeCommand, zmtpError } from "./zmtp-codec.js";

export interface HandshakeStep {
  /** A command to send. */
  readonly reply?: Buffer;
  /** The properties of the peer, once they are known. */
  readonly peer?: Buffer;
  /** Why the peer is refused, after the reply. */
  readonly refused?: Error;
}

export interface Mechanism {
  /** As in the greeting. */
  readonly name: string;
  /** Of two roles, as in the greeting. NULL has none. */
  readonly isServer: boolean;
  /** The first command, of the end that has connected. */
  begin?(): Buffer;
  /** Takes a command of the handshake. Throws for one that breaks the rules. */
  receive(name: string, body: Buffer): HandshakeStep;
  /** The last command, of the end that listens: it knows the peer by now. */
  finish?(properties: Buffer): Buffer;
  /** After the handshake. Undefined: frames go as they are. */
  readonly cipher?: FrameCipher | undefined;
}

export interface FrameCipher {
  /** Encrypts whole frames. */
  seal(frames: Buffer): Buffer;
  /** Decrypts the body of a frame to the frame that it holds. Throws for one that was altered or repeated. */
  open(body: Buffer): Buffer;
}

/** `properties`: of the end that has connected. */
export type MakeMechanism = (properties: () => Buffer) => Mechanism;

export const nullMechanism: MakeMechanism = (properties) => ({
  name: "NULL",
  isServer: false,
  begin: () => makeCommand("READY", properties()),
  receive: (name, body) => {
    if (name !== "READY") throw zmtpError(`${JSON.stringify(name)} where READY is expected`);
    return { peer: body };
  },
  finish: (own) => makeCommand("READY", own),
});
