/** The listener of the round-robin queue: LMQv100 over a ZeroMQ ROUTER. */
import type { Listener, ListenerAddress, ListenerContext } from "../../../broker/listeners/listener.js";
import { openRouter, type Router } from "../../zeromq/index.js";
import { PROTOCOL, RoundRobinServer, type RoundRobinServerOptions } from "./server.js";
import { loadCommands } from "./services.js";
import { RegisteredWorkers } from "./worker-table.js";

const LIMITS = { frames: 1_000, messageBytes: 64 * 1024 * 1024, queueBytes: 64 * 1024 * 1024 };

export interface RoundRobinListener extends Listener {
  readonly server: RoundRobinServer;
}

export async function openRoundRobinListener(
  context: ListenerContext,
  { host, ports: [port = 0] }: ListenerAddress,
  options: RoundRobinServerOptions = {},
): Promise<RoundRobinListener> {
  const { settings, peerErrors } = context;
  const { identities = [], curve } = settings;
  const registered = await RegisteredWorkers.load(context.core, context.log);
  const commands = await loadCommands(context.core);
  // Peers connect once the router is open.
  const server = new RoundRobinServer(context, () => router, registered, commands, options);
  const router: Router = await openRouter(
    {
      host,
      port,
      limits: LIMITS,
      guard: context.guard.of(PROTOCOL),
      identity: (peer, reached) => serverIdentityFor(peer, identities, reached),
      onPeerError: (address, code, why) => peerErrors.report(PROTOCOL, address, code, why),
      curve,
    },
    server,
  ).catch((cause: unknown) => {
    server.close();
    throw cause;
  });
  return {
    urls: [router.url],
    server,
    close: async () => {
      server.close();
      await router.close();
    },
  };
}

/**
 * The identity that a peer expects of this server: the URL that it connected to, with which its own identity begins.
 * For a peer with an automatic identity it is the address that it reached. If the operator has set identities, a peer
 * that matches none of them gets the first.
 */
export function serverIdentityFor(peer: Buffer, identities: readonly string[], reached: string): string {
  const [, connected] = /^(tcp:\/\/.+:\d+):\d+$/.exec(peer.toString("latin1")) ?? [];
  if (identities.length === 0) return connected ?? reached;
  return identities.find((name) => name === connected) ?? identities[0] ?? reached;
}
