import { expect, it } from "vitest";
import { WebSocket } from "ws";
import { encodeFrame } from "../../../src/protocols/laboro/codec.js";
import { LINK_VERSION, type LinkMessage, SUBPROTOCOL } from "../../../src/protocols/laboro/messages.js";
import { join } from "../../support/intruder.js";
import { openTestBroker } from "../../support/test-broker.js";

const hello = (version: number): LinkMessage => ({ type: "HELLO", version, name: "another" });

it.each([
  ["a worker of an older version", join({ version: LINK_VERSION - 1 })],
  ["a worker of a newer version", join({ version: LINK_VERSION + 1 })],
  ["a client of an older version", hello(LINK_VERSION - 1)],
  ["a client of a newer version", hello(LINK_VERSION + 1)],
])("%s is refused with LABORO_VERSION", async (_who, first) => {
  const { broker, client } = await openTestBroker();
  const socket = new WebSocket(`${broker.url.replace("http", "ws")}/node/persistent`, SUBPROTOCOL, {
    headers: { authorization: `Bearer ${broker.token}` },
  });
  socket.once("open", () => socket.send(encodeFrame([first])));
  const closed = await new Promise((resolve) => {
    socket.once("close", (code, reason) => resolve({ code, reason: reason.toString() }));
  });
  expect(closed).toEqual({ code: 1008, reason: expect.stringMatching(/^LABORO_VERSION: /) });
  expect(await client.workers()).toEqual([]);
});
