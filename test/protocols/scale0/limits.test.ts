/** Messages over the limits of a listener are refused with a code, and the peer goes on. */
import { describe, expect, it } from "vitest";
import { startScale0Worker } from "../../../src/protocols/scale0/worker/worker.js";
import { answerOne, atEnd, dealer, openScale0, req, startedWorker } from "./kit.js";
import { LiteralBroker } from "./literal-broker.js";

const MIB = 1024 * 1024;
const refused = (why: RegExp, more: object = {}) => [
  "DISCONNECTERROR",
  { code: 400, message: expect.stringMatching(why), ...more },
];

describe("a message over the limit", () => {
  it("of 64 MiB is refused to a client with its message id; the others are answered", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "small");
    await client.say("WORKREQUEST", { service: "echo", message_id: 2 }, Buffer.alloc(65 * MIB));
    expect(await client.hear()).toEqual(refused(/more than 67108864 bytes/, { message_id: 2 }));
    await answerOne(worker);
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "small"]);
    const asking = req(setup.clients);
    expect(await asking.ask("WORKREQUEST", { service: "echo" }, Buffer.alloc(65 * MIB))).toEqual(refused(/67108864/));
    expect((await asking.ask("PING"))[0]).toBe("PONG");
  });

  it("of 10,000 frames is refused", async () => {
    const setup = await openScale0();
    const client = dealer(setup.clients, "c1");
    const many = Array.from({ length: 10_000 }, () => "x");
    expect(await client.ask("WORKREQUEST", { service: "echo", message_id: 1 }, ...many)).toEqual(
      refused(/more than 10000 frames/, { message_id: 1 }),
    );
  });

  it("of 1 MiB of parameters is refused", async () => {
    const setup = await openScale0();
    const client = dealer(setup.clients, "c1");
    expect(await client.ask("PING", { more: "x".repeat(MIB) })).toEqual(refused(/bytes of parameters/));
    expect((await client.ask("PING"))[0]).toBe("PONG");
  });

  it("of a worker disconnects it, and what it had is refused", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 });
    const [, { work_request_identifier }] = await worker.hear();
    expect(await worker.ask("WORKREPLY", { work_request_identifier }, Buffer.alloc(65 * MIB))).toEqual(
      refused(/67108864/),
    );
    expect((await client.hear())[1]).toMatchObject({ code: 504, message_id: 1 });
    expect((await worker.ask("CONNECT", {}))[0]).toBe("CONFIG");
  });

  it("is not sent by our worker: the answer is an error instead", async () => {
    const broker = await LiteralBroker.open();
    const worker = startScale0Worker({ broker: broker.url, services: { large: () => Buffer.alloc(65 * MIB) } });
    atEnd(() => worker.stop(0));
    await broker.welcome({ heartbeat_interval: 60_000 });
    await broker.say("WORKREQUEST", { work_request_identifier: "c/1" });
    expect((await broker.hearOf("WORKREPLY"))[1]).toEqual({
      work_request_identifier: "c/1",
      error: "the answer is too large to send",
    });
  });
});
