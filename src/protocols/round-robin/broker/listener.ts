/** The listener of the round-robin queue: LMQv100 over a ZeroMQ ROUTER. */
import type { Listener, ListenerAddress, ListenerContext } from "../../../broker/listeners/listener.js";
import { openRouter, type Router } from "../../zeromq/index.js";
import { PROTOCOL, RoundRobinServer, type RoundRobinServerOptions } from "./server.js";
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
  // Peers come when it is open, and not before.
  const opened: { router?: Router } = {};
  const server = new RoundRobinServer(
    context,
    () => {
      if (opened.router === undefined) throw new Error("the listener is not open yet");
      return opened.router;
    },
    await RegisteredWorkers.load(context.core, context.log),
    options,
  );
  try {
    opened.router = await openRouter(
      {
        host,
        port,
        limits: LIMITS,
        guard: context.guard.of(PROTOCOL),
        identity: (peer, reached) => serverIdentityFor(peer, identities, reached),
        onPeerError: (address, code, why) => peerErrors.report(PROTOCOL, address, code, why),
        ...(curve === undefined ? {} : { curve }),
      },
      server,
    );
  } catch (cause) {
    server.close();
    throw cause;
  }
  const { router } = opened;
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
 * The name by which a peer must know this server: the text that it connects with. Its own identity begins with that text;
 * one with an automatic identity is taken to have used the address that it reached. With names given, only those are taken; a peer
 * that fits none gets the first.
 */
export function serverIdentityFor(peer: Buffer, identities: readonly string[], reached: string): string {
  const [, connected] = /^(tcp:\/\/.+:\d+):\d+$/.exec(peer.toString("latin1")) ?? [];
  if (identities.length === 0) return connected ?? reached;
  return identities.find((name) => name === connected) ?? identities[0] ?? reached;
}
