/** CURVE keys as ZeroMQ writes them: 32 bytes in 40 characters of Z85 (RFC 32). */
import { generateKeyPairSync } from "node:crypto";

const Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

export interface CurveKeyPair {
  readonly publicKey: string;
  readonly secretKey: string;
}

export const isCurveKey = (value: unknown): value is string =>
  typeof value === "string" && value.length === 40 && [...value].every((character) => Z85.includes(character));

/** Five characters for four bytes. */
export function z85(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at + 4 <= bytes.length; at += 4) {
    let value = Buffer.from(bytes).readUInt32BE(at);
    let group = "";
    for (let i = 0; i < 5; i++) {
      group = (Z85[value % 85] ?? "") + group;
      value = Math.floor(value / 85);
    }
    text += group;
  }
  return text;
}

/** Of a text that `isCurveKey` accepts. */
export function fromZ85(text: string): Buffer {
  const bytes = Buffer.alloc((text.length / 5) * 4);
  for (let at = 0; at < text.length; at += 5) {
    let value = 0;
    for (const character of text.slice(at, at + 5)) value = value * 85 + Z85.indexOf(character);
    // Five characters can say a little more than four bytes hold.
    bytes.writeUInt32BE(value % 2 ** 32, (at / 5) * 4);
  }
  return bytes;
}

/** A CURVE key is an X25519 key. */
export function newCurveKeyPair(): CurveKeyPair {
  const { x = "", d = "" } = generateKeyPairSync("x25519").privateKey.export({ format: "jwk" });
  return { publicKey: z85(Buffer.from(x, "base64url")), secretKey: z85(Buffer.from(d, "base64url")) };
}
