/** The recorded peers' sides, sent again to our server: what the original server sent must come, frame for frame. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { LiteralPeer, openPlace } from "./place.js";

interface Line {
  readonly scenario: string;
  readonly kind: string;
  readonly who: string;
  readonly frames: readonly string[];
}

const lines = readFileSync(new URL("../../fixtures/round-robin/frames.jsonl", import.meta.url), "utf8")
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => JSON.parse(line) as Line);

const scenarios = [...new Set(lines.map(({ scenario }) => scenario))].filter((name) => name.startsWith("rr-"));

const RECORDED_SERVER = /^tcp:\/\/127\.0\.0\.1:67\d\d/;

describe.each(scenarios)("%s", (scenario) => {
  it("is answered as by the original server", async () => {
    const { url } = await openPlace();
    const peers = new Map<string, LiteralPeer>();
    /** Addresses in the recording hold the original's port; here they hold ours. */
    const moved = (hex: string): string => {
      const text = Buffer.from(hex, "hex").toString("latin1");
      return RECORDED_SERVER.test(text) ? Buffer.from(text.replace(RECORDED_SERVER, url)).toString("hex") : hex;
    };
    const peerOf = (address: string): LiteralPeer => {
      const known = peers.get(address) ?? new LiteralPeer(url, Buffer.from(address, "hex").toString("latin1"));
      peers.set(address, known);
      return known;
    };
    const got = new Map<LiteralPeer, string[]>();
    const take = (peer: LiteralPeer): string[] => {
      const all = got.get(peer) ?? [];
      got.set(peer, all);
      all.push(...peer.takeAll().map((frames) => JSON.stringify(hexOf(frames))));
      return all;
    };
    /** The same message may be recorded as sent though its cause was left out: only three of each kind were kept. */
    const caused: string[] = [];
    let compared = 0;
    for (const { who, kind, frames } of lines.filter((line) => line.scenario === scenario)) {
      const [address = "", ...rest] = frames.map(moved);
      if (who === "server recv") {
        await peerOf(address).sendBytes(...rest.map((frame) => Buffer.from(frame, "hex")));
        caused.push(coreOf(rest));
      } else if (who === "server send" && causesOf(rest).some((cause) => takeOut(caused, cause))) {
        const toWorker = kind.startsWith("TRACKEXEC") || kind.startsWith("EXEC");
        const wanted = JSON.stringify(rest);
        // Which worker is the least recently used one depends on messages that were not kept.
        const places = (): LiteralPeer[] => (toWorker ? [...peers.values()] : [peerOf(address)]);
        await until(`${kind} ${wanted} comes`, () => places().some((peer) => takeOut(take(peer), wanted)));
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(1);
  });
});

/** A message without the addresses around it. */
function coreOf(frames: readonly string[]): string {
  const first = frames.indexOf("");
  const last = frames.lastIndexOf("");
  return JSON.stringify(frames.slice(first, last + 1));
}

/** What makes the server send this: the same message from another peer, or one that it answers itself. */
function causesOf(frames: readonly string[]): string[] {
  const [, version, command, id = ""] = frames;
  const answered = command === "02" ? ["01", id] : ["04", id, "08", "3130"];
  return [coreOf(frames), JSON.stringify(["", version, ...answered, ""])];
}

function takeOut(all: string[], wanted: string): boolean {
  const at = all.indexOf(wanted);
  if (at >= 0) all.splice(at, 1);
  return at >= 0;
}

const hexOf = (frames: readonly string[]): string[] =>
  frames.map((frame) => (frame.startsWith("0x") ? frame.slice(2) : Buffer.from(frame, "latin1").toString("hex")));
