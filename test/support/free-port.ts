/**
 * Ports that a test names before something listens there, or that a server opens again after a restart. They lie below the range from
 * which the kernel gives ports to others, so nothing takes one in between. Each process of tests has a block of its own, also beside other
 * runs of the tests: it listens on the first port of its block for as long as it lives.
 */
import { createServer, type Server } from "node:net";

const FIRST = 16_000;
const PER_BLOCK = 250;
const BLOCKS = 64;

let claimed: Promise<number> | undefined;
let next = Math.floor(Math.random() * PER_BLOCK);

export async function freePort(): Promise<number> {
  claimed ??= claimBlock();
  const first = (await claimed) + 1;
  for (let tries = 1; tries < PER_BLOCK; tries++) {
    const port = first + (next++ % (PER_BLOCK - 1));
    const probe = await listen(port);
    if (probe === undefined) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
  throw new Error(`no port from ${first} to ${first + PER_BLOCK - 2} is free`);
}

/** The first port of a block that no other process has. */
async function claimBlock(): Promise<number> {
  const start = Math.floor(Math.random() * BLOCKS);
  for (let tries = 0; tries < BLOCKS; tries++) {
    const port = FIRST + ((start + tries) % BLOCKS) * PER_BLOCK;
    const holder = await listen(port);
    if (holder === undefined) continue;
    holder.unref();
    return port;
  }
  throw new Error(`all of the ${BLOCKS} blocks of ports are taken`);
}

/** Undefined if something else listens there. */
function listen(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", () => resolve(undefined));
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}
