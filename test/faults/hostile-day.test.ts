/** Every listener open, a batch under way, and thousands of callers at each port that mean no good. */
import { connect as connectSocket } from "node:net";
import { expect, it } from "vitest";
import { busySite, expectUnharmed } from "../support/intruder.js";
import { memoryOf } from "../support/process-table.js";
import { mutation, SeededRandom } from "../support/random.js";
import { sites } from "../support/site.js";

const newSite = sites();
const INPUTS = process.env.LABORO_FAULTS === "full" ? 10_000 : 1_000;
const TASKS = 600;
const AT_ONCE = 32;
/** MiB that a broker may have more after the second wave than after the first. */
const GROWTH = 40;
const LISTENERS = ["fuq=0", "fuq1=0", "runexp=0", "round-robin=0", "scale0=0,0,0"];

const zmtp = (type: string, ...frames: string[]): Buffer => {
  const greeting = Buffer.alloc(64);
  greeting[0] = 0xff;
  greeting[9] = 0x7f;
  greeting[10] = 3;
  greeting.write("NULL", 12);
  const property = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.of(name.length), Buffer.from(name), Buffer.of(0, 0, 0, value.length), Buffer.from(value)]);
  const ready = Buffer.concat([
    Buffer.from("\x05READY"),
    property("Socket-Type", type),
    property("Identity", "intruder"),
  ]);
  const messages = frames.map((frame, at) =>
    Buffer.concat([Buffer.of(at < frames.length - 1 ? 1 : 0, frame.length), Buffer.from(frame, "latin1")]),
  );
  return Buffer.concat([greeting, Buffer.of(4, ready.length), ready, ...messages]);
};

const fuqHeader = (type: number, seq: number, arg: number): Buffer => {
  const header = Buffer.alloc(16);
  header.writeUInt16LE(0xc047, 0);
  header[2] = type;
  header.writeUInt32LE(seq, 4);
  header.writeUInt32LE(arg, 12);
  return header;
};

const hello = Buffer.from("82a84e756d50726f637302a752756e6e696e6790", "hex");
const update = Buffer.from(
  "85a54a6f62496401a45461736b01a753756363657373c3a6537461747573a4646f6e65a64e65774a6f62c0",
  "hex",
);
const scale0 = '{"services":["x"],"slots":1,"config_type":"JSON","heartbeat_interval":1000,"time":1}';

/** What a peer of each listener might say, to be spoiled. */
const SEEDS: Readonly<Record<string, readonly Uint8Array[]>> = {
  main: [
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    'POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"auth":1}',
    "GET /node/persistent HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
  ].map((text) => Buffer.from(text, "latin1")),
  fuq: [
    Buffer.concat([fuqHeader(2, 0, hello.length), hello]),
    Buffer.concat([fuqHeader(2, 0, hello.length), hello, fuqHeader(4, 2, update.length), update]),
    Buffer.concat([fuqHeader(1, 0, 0x10000), fuqHeader(9, 2, 0), fuqHeader(8, 4, 0)]),
  ],
  fuq1: [
    Buffer.from("47c001000000000002000000", "hex"),
    Buffer.from("47c00100000000000200000047c004000000000029000000", "hex"),
  ],
  runexp: ["SALUTON; MI intruder", "SALUTON; MI a KOMPRENASJESPETO", "PETO", "REZULTO ../x success 4"].map((text) =>
    Buffer.from(text),
  ),
  "round-robin": [
    zmtp("ROUTER", "", "LMQv100", "\x01", "12345678", ""),
    zmtp("DEALER", "", "LMQv100", "\x04", "1234", "\x08", "10", ""),
    zmtp("DEALER", "", "LMQv100", "\x04", "12345678", "\x01", ""),
  ],
  scale0: [
    zmtp("DEALER", "CONNECT", scale0),
    zmtp("DEALER", "PING", scale0),
    zmtp("REQ", "", "WORKREQUEST", '{"service":"x","message_id":"1"}', "body"),
    zmtp("SUB", "\x01PING"),
  ],
};

/** One input on a connection of its own. Over when the broker has closed it, or has had its time. */
function intrude(port: number, bytes: Uint8Array, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = connectSocket(port, "127.0.0.1");
    const over = (): void => {
      clearTimeout(patience);
      socket.destroy();
      resolve();
    };
    const patience = setTimeout(over, patienceMs);
    socket.on("error", over);
    socket.on("close", over);
    socket.on("data", () => {});
    socket.write(bytes);
  });
}

async function wave(ports: readonly { listener: string; port: number }[], count: number, random: SeededRandom) {
  for (const { listener, port } of ports) {
    const seeds = SEEDS[listener] ?? [];
    let left = count;
    const caller = async (): Promise<void> => {
      while (left-- > 0) {
        const seed = seeds[random.between(0, seeds.length - 1)] ?? Buffer.alloc(0);
        await intrude(port, mutation(random, seed), random.between(1, 20));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, caller));
  }
}

it("a batch does not notice what comes to the other ports, and the log names each fault of a peer once", async () => {
  const random = new SeededRandom();
  const site = newSite();
  const busy = await busySite(site, TASKS, { listeners: LISTENERS });
  const { broker } = busy;
  const listeners = [...broker.said.matchAll(/^(\S+) listens on (.+)$/gm)].flatMap(([, listener = "", urls = ""]) =>
    urls.split(", ").map((url) => ({ listener, port: Number(url.split(":").at(-1)) })),
  );
  expect(listeners).toHaveLength(7);
  const ports = [{ listener: "main", port: Number(new URL(site.url).port) }, ...listeners];
  // What an allocator keeps for the next time it keeps after the first: as many are compared with as many.
  await wave(ports, INPUTS, random);
  const said = broker.said.length;
  let [before, after] = [0, Number.POSITIVE_INFINITY];
  // A leak shows in every wave, garbage that is not yet collected only in some.
  for (let waves = 0; waves < 3 && after - before >= GROWTH; waves++) {
    before = memoryOf(broker.pid).now;
    await wave(ports, INPUTS, random);
    after = memoryOf(broker.pid).now;
  }
  const lines = broker.said.slice(said).split("\n").length - 1;
  console.log(
    `${INPUTS} inputs at each of ${ports.length} ports (seed ${random.seed}): ${Math.round(before)} MiB before, ${Math.round(after)} after; ${lines} lines of log`,
  );
  await expectUnharmed("a hostile day", busy, TASKS);
  expect(after - before).toBeLessThan(GROWTH);
  expect(lines).toBeLessThan(ports.length * 20);
  const complaints = Array.from(
    broker.said.matchAll(/"listener":"([^"]+)","peer":"([^"]+)","code":"([^"]+)","msg":"(.*)"\}/g),
    ([, listener, peer, code, message]) => ({ source: `${listener} ${peer} ${code}`, message }),
  );
  const faults = complaints.map(({ source, message }) => `${source} ${message}`);
  expect(faults.filter((fault, i) => faults.indexOf(fault) !== i)).toEqual([]);
  const counts = new Map<string, number>();
  for (const { source } of complaints) counts.set(source, (counts.get(source) ?? 0) + 1);
  expect(counts.size).toBeGreaterThan(0);
  expect([...counts].filter(([, count]) => count > 20)).toEqual([]);
}, 600_000);
