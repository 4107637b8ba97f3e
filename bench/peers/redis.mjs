/** A throw-away Redis that has every write on disk before it answers. */
import { removeFolder, start, temporaryFolder, which } from "../lib/children.mjs";
import { freePort } from "./ports.mjs";

export const redisInstalled = () => which("redis-server") !== undefined;

export async function startRedis() {
  const dir = temporaryFolder("redis");
  const port = await freePort();
  const durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
  const server = start(which("redis-server"), [
    "--bind",
    "127.0.0.1",
    "--port",
    String(port),
    "--dir",
    dir,
    ...durable,
  ]);
  await server.says(/Ready to accept connections/);
  return {
    port,
    stop: async () => {
      await server.stop();
      removeFolder(dir);
    },
  };
}
