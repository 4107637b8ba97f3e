import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { expect, it } from "vitest";
import type { ListenerContext } from "../../../../src/broker/listeners/listener.js";
import { upgradeToWebSocket } from "../../../../src/protocols/fuq/broker/listener.js";
import { nodeNamed } from "../foreman/kit.js";

it("a broker that is stopping lets no worker in: it would wait for ever for an OK", async () => {
  const context = { core: { stopping: true } } as ListenerContext;
  const socket = new PassThrough();
  const said = text(socket);
  const nodeOf = async () => nodeNamed("vm:7:1");
  await upgradeToWebSocket(context, nodeOf, {} as IncomingMessage, socket, Buffer.alloc(0));
  expect(await said).toMatch(/^HTTP\/1\.1 503 Service Unavailable\r\n.*the broker is stopping\n$/s);
});
