/** `laboro decode`: decodes captured bytes into named messages. Needs no broker. */
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { Command } from "commander";
import { badInput, errnoOf, LaboroError, whyUnreadable } from "../../base/errors.js";
import { DECODERS, type DecodedMessage, type Decoder } from "../../protocols/decoders.js";
import { EXIT } from "../lib/failures.js";
import { printJson, printLines } from "../lib/print.js";
import { suggestion } from "../lib/suggest.js";

interface Options {
  readonly binary?: boolean;
  readonly json?: boolean;
}

/** Bytes of one direction: part of a stream, or a message in its frames. */
interface CapturedFrames {
  readonly direction: string;
  readonly frames: readonly Uint8Array[];
}

interface DirectedMessage extends DecodedMessage {
  readonly direction: string;
}

export function decode(): Command {
  return new Command("decode")
    .description(
      "Decode captured bytes of a protocol and print its messages. An input line is hex; or a direction and hex, one word per frame, " +
        "- for an empty frame; or a JSON object with dir and hex, text or frames. Lines that begin with # are ignored. Exit with 1 " +
        "if something could not be decoded.",
    )
    .argument("<protocol>", `one of ${Object.keys(DECODERS).join(", ")}`)
    .argument("[file]", "the capture; - is standard input (default: standard input)")
    .option("--binary", "read raw bytes of one direction instead of lines")
    .option("--json", "print one JSON document instead of text")
    .addHelpText(
      "after",
      "\nExamples:\n  echo 'W>F 47c00200000000000000000000000000' | laboro decode fuq\n  laboro decode fuq capture.txt --json\n" +
        "  laboro decode fuq --binary < stream.bin",
    )
    .action(run);
}

async function run(
  protocol: string,
  file: string | undefined,
  { binary = false, json = false }: Options,
): Promise<void> {
  const decoder = await decoderOf(protocol);
  const input = file === undefined || file === "-" ? process.stdin : createReadStream(file);
  const all: DirectedMessage[] = [];
  let unread = 0;
  const print = (direction: string, messages: readonly DecodedMessage[]): void => {
    for (const message of messages) {
      if (message.name === "?") unread++;
      if (json) all.push({ direction, ...message });
      else printLines(lineOf(direction, message));
    }
  };
  try {
    for await (const { direction, frames } of binary ? chunksOf(input) : linesOf(input)) {
      print(direction, decoder.push(direction, frames));
    }
  } catch (cause) {
    if (cause instanceof LaboroError || errnoOf(cause) === undefined) throw cause;
    throw badInput(`cannot read ${file}: ${whyUnreadable(cause)}`, cause);
  }
  print("", decoder.end());
  if (json) printJson(all);
  if (unread > 0) process.exitCode = EXIT.failed;
}

async function decoderOf(protocol: string): Promise<Decoder> {
  const load = Object.hasOwn(DECODERS, protocol) ? DECODERS[protocol] : undefined;
  if (load !== undefined) return (await load())();
  const names = Object.keys(DECODERS);
  const meant = suggestion(protocol, names);
  const why = meant === "" ? `; there are ${names.join(", ")}` : meant;
  throw badInput(`there is no protocol ${protocol}${why}`);
}

async function* chunksOf(input: Readable): AsyncIterable<CapturedFrames> {
  for await (const chunk of input) yield { direction: "", frames: [chunk as Buffer] };
}

async function* linesOf(input: Readable): AsyncIterable<CapturedFrames> {
  let number = 0;
  for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
    number++;
    const text = line.trim();
    if (text === "" || text.startsWith("#")) continue;
    const piece = text.startsWith("{") ? parseJsonLine(text, number) : parseHexLine(text, number);
    if (piece !== undefined) yield piece;
  }
}

/** Undefined for a line without bytes, such as a connect event. */
function parseJsonLine(text: string, number: number): CapturedFrames | undefined {
  const given = parsed(text, number);
  const { dir, who, ev, hex, text: plain, frames } = given;
  if (ev !== undefined && ev !== "data") return undefined;
  const direction = [dir, who].find((one) => typeof one === "string") ?? "";
  if (Array.isArray(frames)) return { direction, frames: frames.map((frame) => bytesOf(String(frame), number)) };
  if (typeof hex === "string") return { direction, frames: [bytesOf(hex, number)] };
  return typeof plain === "string" ? { direction, frames: [Buffer.from(plain)] } : undefined;
}

function parsed(text: string, number: number): Readonly<Record<string, unknown> & { dir?: string; who?: string }> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch (cause) {
    throw badInput(`line ${number} begins like JSON, but is not JSON`, cause);
  }
}

function parseHexLine(text: string, number: number): CapturedFrames {
  const [first = "", ...rest] = text.split(/\s+/);
  const directed = !isHex(first) && first !== "-";
  const words = directed ? rest : [first, ...rest];
  if (words.length === 0) throw notHex(number, first);
  return { direction: directed ? first : "", frames: words.map((word) => bytesOf(word === "-" ? "" : word, number)) };
}

const isHex = (word: string): boolean => word.length % 2 === 0 && /^[0-9a-f]*$/i.test(word);

function bytesOf(word: string, number: number): Buffer {
  if (!isHex(word)) throw notHex(number, word);
  return Buffer.from(word, "hex");
}

const notHex = (number: number, word: string): LaboroError => {
  const shown = word.length > 40 ? `${word.slice(0, 40)}…` : word;
  return badInput(`line ${number}: ${shown} is not hex: expected two digits for each byte`);
};

function lineOf(direction: string, { name, fields, note }: DecodedMessage): string {
  const shown = Object.entries(fields).map(([key, value]) => `${key}=${formatValue(value)}`);
  return [direction, name, ...shown, note === undefined ? "" : `(${note})`].filter((word) => word !== "").join(" ");
}

const formatValue = (value: unknown): string =>
  typeof value === "string" && /^[\w./:>-]+$/.test(value) ? value : JSON.stringify(value);
