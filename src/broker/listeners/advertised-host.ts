/** The host name under which other machines reach this one, where none is given. */
import { lookup } from "node:dns/promises";
import { hostname, networkInterfaces } from "node:os";
import { isLoopback } from "../../base/addresses.js";

/**
 * The host name, unless it means this machine to itself only: many systems have a line for it in /etc/hosts that leads back
 * here. Then an address by which others can reach it, if it has one.
 */
export async function advertisedHost(): Promise<string> {
  const name = hostname();
  const found = await lookup(name).catch(() => undefined);
  if (found !== undefined && !isLoopback(found.address)) return name;
  const outward = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith("fe80"))
    .sort((a, b) => Number(a.family === "IPv6") - Number(b.family === "IPv6"));
  return outward[0]?.address ?? name;
}
