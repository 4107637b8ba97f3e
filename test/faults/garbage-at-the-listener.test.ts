import type { Socket } from "node:net";
import { expect, it } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../../src/entries/client.js";
import { JobId } from "../../src/model/ids.js";
import { encodeFrame } from "../../src/protocols/laboro/codec.js";
import { type FromClient, type FromWorker, LINK_VERSION } from "../../src/protocols/laboro/messages.js";
import { busySite, expectUnharmed, join, openLink, rawSocket, sendFrames } from "../support/intruder.js";
import { memoryOf } from "../support/process-table.js";
import { mutation, SeededRandom } from "../support/random.js";
import { TRUE } from "../support/recipes.js";
import { scaled } from "../support/scale.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const FRAMES = scaled(500);
const TASKS = scaled(300);
const newSite = sites();

const SEEDS: readonly (readonly (FromWorker | FromClient)[])[] = [
  [join({ held: [{ job: JobId(1), first: 3, last: 9, attempt: 1, state: "running" }] })],
  [
    join(),
    {
      type: "DONE",
      seq: 1,
      tasks: [{ job: JobId(1), index: 1, attempt: 1, code: 0, started: 1, ended: 2, outputBytes: 0 }],
    },
  ],
  [
    join(),
    {
      type: "OUTPUT",
      job: JobId(1),
      index: 1,
      attempt: 1,
      stream: "stdout",
      offset: 7,
      bytes: Buffer.from("intruded"),
    },
  ],
  [
    join(),
    { type: "RETRACTED", tasks: [{ job: JobId(1), first: 0, last: 9, attempt: 1 }] },
    { type: "SERVICES", services: ["x"] },
  ],
  [
    { type: "HELLO", version: LINK_VERSION, name: "junk" },
    { type: "OPERATION", id: 1, operation: "results", input: { job: 1, from: 0 } },
  ],
  [
    { type: "HELLO", version: LINK_VERSION, name: "junk" },
    { type: "OPERATION", id: 2, operation: "submit", input: { recipe: TRUE, pool: "nobody" } },
  ],
  [
    { type: "HELLO", version: LINK_VERSION, name: "junk" },
    { type: "REQUEST", id: 3, service: "x", body: Buffer.from("y"), deadline: 50, pool: "nobody", retry: false },
  ],
];

/** A good frame with bytes changed, cut out or put in; or no frame at all. */
const mutated = (random: SeededRandom): Uint8Array =>
  mutation(random, Buffer.from(encodeFrame(SEEDS[random.between(0, SEEDS.length - 1)] ?? [])));

it("is not disturbed by random and mutated frames", async () => {
  const random = new SeededRandom();
  const busy = await busySite(newSite(), TASKS);
  const idle = memoryOf(busy.broker.pid).now;
  let sent = 0;
  let refused = 0;
  const senders = Array.from({ length: 16 }, async () => {
    while (sent < FRAMES) {
      sent++;
      const reason = await sendFrames(busy.site, [mutated(random)], "read");
      if (reason?.startsWith("LABORO_BAD_MESSAGE")) refused++;
    }
  });
  await Promise.all(senders);
  await expectUnharmed(`${sent} garbage frames (seed ${random.seed}), ${refused} refused by name`, busy, TASKS);
  expect(refused).toBeGreaterThan(FRAMES / 4);
  expect(memoryOf(busy.broker.pid).most - idle).toBeLessThan(200);
});

it("is not disturbed by half-open sockets, HTTP junk and wrong tokens", async () => {
  const random = new SeededRandom();
  const busy = await busySite(newSite(), 300);
  const { site } = busy;
  const upgrade = `GET /node/persistent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n`;
  const junk: (Uint8Array | string)[] = [
    "",
    "GET / HT",
    "GET / HTTP/1.1\r\n\r\n",
    "POST /node/persistent HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx",
    `GET /${"a".repeat(100_000)} HTTP/1.1\r\n\r\n`,
    `GET / HTTP/1.1\r\nX: ${"b".repeat(1_000_000)}`,
    "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    upgrade,
    `${upgrade}\r\n`,
    `${upgrade}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: laboro.1\r\n\r\n`,
    `${upgrade}Sec-WebSocket-Key: short\r\nSec-WebSocket-Protocol: laboro.1\r\nAuthorization: Bearer ${site.token}\r\n\r\n`,
    Buffer.from("16030100c8010000c403035a", "hex"),
    random.bytes(5_000),
  ];
  const sockets = Array.from({ length: 10 }, () => junk.map((bytes) => rawSocket(site, bytes))).flat();
  site.atEnd(() => sockets.forEach((socket) => void socket.destroy()));
  const silent = await Promise.all(Array.from({ length: 50 }, () => openLink(site)));
  site.atEnd(() => silent.forEach((socket) => void socket.terminate()));

  for (const token of ["", "wrong", `${site.token}x`, "\u{1f4a9}".repeat(10)]) {
    const attempt = connect({
      broker: site.url,
      token: Buffer.from(token).toString("latin1"),
      connectTimeoutMs: 3_000,
    });
    await expect(attempt).rejects.toMatchObject({ code: "LABORO_BAD_TOKEN" });
  }
  await expectUnharmed(`${sockets.length} junk sockets and ${silent.length} silent links`, busy, 300);
  // Nobody says who it is, so nobody is kept waiting for.
  await until("the silent links are closed", () => silent.every(({ readyState }) => readyState === WebSocket.CLOSED));
});

it("is not stopped by a frame that claims to be enormous", async () => {
  const busy = await busySite(newSite(), 300);
  const socket = await openLink(busy.site);
  const closed = new Promise<number>((resolve) => socket.once("close", resolve));
  // A masked binary frame of 2^62 bytes, of which none follows.
  (socket as unknown as { _socket: Socket })._socket.write(Buffer.from("82ff4000000000000000deadbeef", "hex"));
  expect(await closed).toBe(1009);
  expect(busy.broker.said).toMatch(/link closed: LABORO_(BODY_TOO_LARGE|BAD_MESSAGE)/);
  const many = join({
    total: { slots: Number.MAX_VALUE, gpu: Number.MAX_VALUE },
    reserveRequests: Number.MAX_SAFE_INTEGER,
  });
  await sendFrames(busy.site, [encodeFrame([many])]);
  await expectUnharmed("frames with enormous numbers", busy, 300);
});
