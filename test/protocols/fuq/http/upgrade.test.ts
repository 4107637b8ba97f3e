import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { expect, it } from "vitest";
import type { ListenerContext } from "../../../../src/broker/listeners/listener.js";
import { Upgrades } from "../../../../src/protocols/fuq/broker/http/upgrade.js";
import { nodeNamed } from "../foreman/kit.js";

it("a broker that is stopping lets no worker in: it would wait for ever for an OK", async () => {
  const context = { core: { stopping: true } } as ListenerContext;
  const socket = new PassThrough();
  const said = text(socket);
  await new Upgrades(context, async () => nodeNamed("vm:7:1")).upgrade({} as IncomingMessage, socket, Buffer.alloc(0));
  expect(await said).toMatch(/^HTTP\/1\.1 503 Service Unavailable\r\n.*the broker is stopping\n$/s);
});
