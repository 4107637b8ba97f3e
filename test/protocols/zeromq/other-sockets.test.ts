import { describe, expect, it } from "vitest";
import { Router as ZmqRouter, Subscriber as ZmqSubscriber } from "zeromq";
import { openDealer, openPublisher } from "../../../src/protocols/zeromq/index.js";
import {
  encodeCommand,
  encodeGreeting,
  encodeMessage,
  makeCommand,
  makeProperties,
} from "../../../src/protocols/zeromq/zmtp-codec.js";
import { until } from "../../support/wait.js";
import { atEnd, heardRouter, raw, zmq } from "./support.js";

const text = (frames: readonly Buffer[]): string[] => frames.map((frame) => frame.toString("latin1"));

describe("laboro's own PUB", () => {
  it("gives a SUB of ZeroMQ what it has subscribed to, and no more", async () => {
    const publisher = await openPublisher({ host: "127.0.0.1", port: 0 });
    atEnd(() => publisher.close());
    const subscriber = zmq((context) => new ZmqSubscriber({ context, receiveTimeout: 20_000 }));
    subscriber.connect(publisher.url);
    subscriber.subscribe("news", "sports");
    const got: string[][] = [];
    void (async () => {
      for await (const frames of subscriber) got.push(text(frames));
    })().catch(() => {});
    await until("the subscription has arrived", () => {
      publisher.publish([Buffer.from("news.here"), Buffer.from("1")]);
      return got.length > 0;
    });
    publisher.publish([Buffer.from("weather")]);
    publisher.publish([Buffer.from("sports")]);
    await until("the second topic has come", () => got.some(([topic]) => topic === "sports"));
    expect(got.some(([topic]) => topic === "weather")).toBe(false);
    subscriber.unsubscribe("sports");
    await until("it is over", async () => {
      const before = got.filter(([topic]) => topic === "sports").length;
      publisher.publish([Buffer.from("sports")]);
      publisher.publish([Buffer.from("news mark")]);
      await until("the mark has come", () => got.at(-1)?.[0] === "news mark" || undefined);
      const after = got.filter(([topic]) => topic === "sports").length;
      got.push(["checked"]);
      return after === before;
    });
  });

  it("takes subscriptions that come as messages, as ZMTP 3.0 has them", async () => {
    const publisher = await openPublisher({ host: "127.0.0.1", port: 0 });
    atEnd(() => publisher.close());
    const subscriber = await raw(publisher.port);
    const ready = makeCommand("READY", makeProperties({ "Socket-Type": Buffer.from("SUB") }));
    const subscribe = (first: number, topic: string): Buffer =>
      encodeMessage([Buffer.concat([Buffer.from([first]), Buffer.from(topic)])]);
    subscriber.socket.write(Buffer.concat([encodeGreeting(), encodeCommand(ready)]));
    subscriber.socket.write(Buffer.concat([subscribe(1, "a"), subscribe(1, "bc")]));
    const got = (topic: string): boolean => subscriber.received().includes(encodeMessage([Buffer.from(topic)]));
    await until("both subscriptions have arrived", () => {
      for (const topic of ["bcd", "x", "az"]) publisher.publish([Buffer.from(topic)]);
      return got("bcd") && got("az");
    });
    expect(got("x")).toBe(false);
    subscriber.socket.write(subscribe(0, "a"));
    await until("one of them is over", async () => {
      const before = subscriber.received().length;
      publisher.publish([Buffer.from("az")]);
      publisher.publish([Buffer.from("bc mark")]);
      const mark = encodeMessage([Buffer.from("bc mark")]);
      await until("the mark has come", () => subscriber.received().indexOf(mark, before) >= 0);
      return subscriber.received().length - before === mark.length;
    });
  });
});

describe("laboro's own DEALER", () => {
  it("speaks to a ROUTER of ZeroMQ, with the identity that it was given", async () => {
    const server = zmq((context) => new ZmqRouter({ context, linger: 0, receiveTimeout: 20_000 }));
    await server.bind("tcp://127.0.0.1:*");
    const got: string[][] = [];
    let opened = 0;
    const peer = await openDealer(
      { url: server.lastEndpoint ?? "", identity: "me" },
      { message: (frames) => got.push(text(frames)), opened: () => opened++ },
    );
    atEnd(() => peer.close());
    expect(peer.send([Buffer.from("early")])).toBe(false);
    await until("it is connected", () => opened === 1);
    peer.send([Buffer.from("hello"), Buffer.alloc(0)]);
    expect(text(await server.receive())).toEqual(["me", "hello", ""]);
    await server.send(["me", "welcome"]);
    await until("the answer has come", () => got.length === 1);
    expect(got[0]).toEqual(["welcome"]);
  });

  it("connects again by itself when the other end has been away", async () => {
    const first = await heardRouter();
    const { port } = first.router;
    let opened = 0;
    const closed: string[] = [];
    const peer = await openDealer(
      { url: first.router.url, identity: "me", reconnectMs: 10, reconnectMaxMs: 50 },
      { message: () => {}, opened: () => opened++, closed: (why) => closed.push(why) },
    );
    atEnd(() => peer.close());
    await until("it is connected", () => opened === 1);
    await first.router.close();
    await until("it is missed", () => closed.length === 1);
    const second = await heardRouter({ port });
    await until("it is connected again", () => opened === 2);
    expect(second.joined).toEqual(["me"]);
    expect(closed.length).toBe(1);
  });
});
