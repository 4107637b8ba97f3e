/**
 * `laboro decode runexp`: decodes both directions of a capture together, because one direction announces the size of
 * data in the other. `r>m` and `m>r` name the directions; with other names, or none, each may contain messages of both
 * sides.
 */
import type { DecodedMessage, Decoder } from "../decoders.js";
import {
  type FromManager,
  type FromRunner,
  fieldsOf,
  MessageReader,
  type MessageType,
  type RunexpMessage,
} from "./messages.js";

type Side = "runner" | "manager";

const RUNNER: readonly FromRunner["type"][] = ["SALUTON", "KOMPRENAS", "JES", "PETO", "PRETA", "REZULTO", "FINO ANKAU"];
const MANAGER: readonly FromManager["type"][] = [
  "VERSIO",
  "ALIGI",
  "LABORO",
  "FINO",
  "ATENDI",
  "ELIRI",
  "PRETA",
  "RICEVIS",
];
const EXPECTED: Readonly<Record<Side | "both", readonly MessageType[]>> = {
  runner: RUNNER,
  manager: MANAGER,
  both: [...RUNNER, ...MANAGER],
};

/** Bytes of a script or output that are shown. */
const PREVIEW_BYTES = 200;

interface Direction {
  readonly reader: MessageReader;
  readonly side: Side | "both";
  /** Bytes of data that was announced and requested. */
  dataLeft: number;
  data: Buffer[];
}

class RunexpDecoder implements Decoder {
  readonly #directions = new Map<string, Direction>();
  /** By LABORO or REZULTO, until PRETA of the other side. */
  #announced: { readonly by: Side; readonly size: number } | undefined;

  push(direction: string, frames: readonly Uint8Array[]): readonly DecodedMessage[] {
    const into = this.#direction(direction);
    const found: DecodedMessage[] = [];
    for (const frame of frames) {
      into.reader.push(frame);
      found.push(...this.#read(into, false));
    }
    return found;
  }

  end(): readonly DecodedMessage[] {
    const found: DecodedMessage[] = [];
    for (const one of this.#directions.values()) {
      found.push(...this.#read(one, true));
      if (one.dataLeft > 0) found.push({ ...dataPreview(one.data), note: `${one.dataLeft} bytes of it are missing` });
    }
    return found;
  }

  #direction(name: string): Direction {
    const known = this.#directions.get(name);
    if (known !== undefined) return known;
    const fromRunner = /^(r>m|runner|>|c2s)/.test(name);
    const side = fromRunner ? "runner" : /^(m>r|manager|<|s2c)/.test(name) ? "manager" : "both";
    const made: Direction = { reader: new MessageReader(), side, dataLeft: 0, data: [] };
    this.#directions.set(name, made);
    return made;
  }

  #read(one: Direction, last: boolean): DecodedMessage[] {
    const found: DecodedMessage[] = [];
    while (one.reader.length > 0) {
      if (one.dataLeft > 0) {
        const piece = one.reader.takeData(one.dataLeft);
        one.data.push(piece);
        one.dataLeft -= piece.length;
        if (one.dataLeft === 0) found.push(dataPreview(one.data.splice(0)));
        continue;
      }
      // A capture has no clock: a message with a variable tail ends with its piece.
      one.reader.quietElapsed();
      const taken = one.reader.take<MessageType>(EXPECTED[one.side]);
      if (taken.kind === "message") {
        found.push({ name: taken.message.type, fields: fieldsOf(taken.message) });
        this.#onMessage(taken.message, one);
      } else if (taken.kind === "wrong" || last) {
        const bytes = one.reader.takeData(one.reader.length);
        const note = taken.kind === "wrong" ? "no message of runexp 1.3" : "not a whole message";
        found.push({ name: "?", fields: dataPreview([bytes]).fields, note });
      } else break;
    }
    return found;
  }

  #onMessage(message: RunexpMessage, from: Direction): void {
    if (message.type === "LABORO" || message.type === "REZULTO") {
      this.#announced = { by: message.type === "LABORO" ? "manager" : "runner", size: message.size };
    }
    const announced = this.#announced;
    if (message.type !== "PRETA" || announced === undefined) return;
    this.#announced = undefined;
    const others = [...this.#directions.values()].filter((one) => one !== from);
    // If both sides are in one stream, the data is in it too.
    const sender = others.find(({ side }) => side === announced.by) ?? others[0] ?? from;
    sender.dataLeft = announced.size;
  }
}

function dataPreview(pieces: readonly Buffer[]): DecodedMessage {
  const bytes = Buffer.concat(pieces);
  const text = bytes.toString("utf8", 0, PREVIEW_BYTES);
  return { name: "(data)", fields: { bytes: bytes.length, text: bytes.length > PREVIEW_BYTES ? `${text}…` : text } };
}

export const decoder = (): Decoder => new RunexpDecoder();
