/**
 * The listener of Scale0: three ports, for clients, for workers, and one that publishes to workers of the prototype's dialect. Each side is
 * a file of its own; here the ports are opened, and changes are passed to all of them.
 */

import { inUrl } from "../../../base/addresses.js";
import { now } from "../../../base/clock.js";
import { advertisedHost } from "../../../broker/listeners/advertised-host.js";
import type { ListenerFactory } from "../../../broker/listeners/listener.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import {
  type BindOptions,
  openPublisher,
  openRouter,
  type Peer,
  type Router,
  type RouterListener,
} from "../../zeromq/index.js";
import { ClientConnections } from "./client-connections.js";
import { Brokers, type Scale0Context } from "./context.js";
import { PeerSession } from "./peer-session.js";
import type { Publish } from "./prototype.js";
import { WorkerConnections } from "./worker-connections.js";

/** How often the prototype's PING is published. */
const PUBLISH_MS = 1_000;

export const openScale0Listener: ListenerFactory = async (
  { core, guard, peerErrors, connections, settings },
  { host, ports },
) => {
  const options = (port = 0): BindOptions => ({
    host,
    port,
    guard: guard.of("scale0"),
    curve: settings.curve,
    onPeerError: (address, code, why) => peerErrors.report("scale0", address, code, why),
  });
  const clientListener = new BufferingListener();
  const workerListener = new BufferingListener();
  const { publisher, clients, workers, close } = await openSockets(options, ports, clientListener, workerListener);
  const name = host === "0.0.0.0" || host === "::" || host === "" ? await advertisedHost() : host;
  const uri = ({ port }: { readonly port: number }): string => `tcp://${inUrl(name)}:${port}`;
  const context: Scale0Context = {
    core,
    pool: settings.pool ?? DEFAULT_POOL,
    requiresKeys: settings.curve !== undefined,
    brokers: new Brokers(core, {
      identity: `${name}:${workers.port}`,
      worker_uri: uri(workers),
      client_uri: uri(clients),
    }),
    onPeerError: (address, why, code = "LABORO_BAD_MESSAGE") => peerErrors.report("scale0", address, code, why),
  };
  const openSession = (router: Router) => (peer: Peer) =>
    new PeerSession(peer, router, connections.open("scale0", peer.address));
  const publish: Publish = (...frames) => publisher.publish(frames.map((frame) => Buffer.from(frame)));
  const clientConnections = new ClientConnections(context, openSession(clients));
  const workerConnections = new WorkerConnections(context, openSession(workers), publish);
  workerListener.attach(workerConnections);
  clientListener.attach(clientConnections);
  const pings = setInterval(() => workerConnections.pingPrototypes(String(Math.round(now()))), PUBLISH_MS);
  const unsubscribe = [
    core.config.onChanged(() => workerConnections.configChanged()),
    core.group?.onChanged?.(() => workerConnections.brokersChanged()),
    core.maintenance.onChanged((draining) => {
      workerConnections.setDraining(draining);
      clientConnections.setDraining(draining);
    }),
  ];
  return {
    urls: [uri(clients), uri(workers), uri(publisher)],
    close: async () => {
      clearInterval(pings);
      for (const stop of unsubscribe) stop?.();
      workerConnections.close();
      clientConnections.close();
      await close();
    },
  };
};

/** All three or none. */
async function openSockets(
  options: (port: number | undefined) => BindOptions,
  [clientPort, workerPort, publishPort]: readonly number[],
  clientListener: RouterListener,
  workerListener: RouterListener,
) {
  const open: { close(): Promise<void> }[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(open.map((socket) => socket.close()));
  };
  try {
    const publisher = await openPublisher(options(publishPort));
    open.push(publisher);
    const clients = await openRouter(options(clientPort), clientListener);
    open.push(clients);
    const workers = await openRouter(options(workerPort), workerListener);
    open.push(workers);
    return { publisher, clients, workers, close };
  } catch (cause) {
    await close();
    throw cause;
  }
}

type RouterConnections = RouterListener & Required<Pick<RouterListener, "joined" | "left">>;

/** Keeps events that come before all ports are open until they are. */
class BufferingListener implements RouterListener {
  #target: RouterConnections | undefined;
  readonly #queued: ((target: RouterConnections) => void)[] = [];

  joined(peer: Peer): void {
    this.#deliver((target) => target.joined(peer));
  }

  left(peer: Peer): void {
    this.#deliver((target) => target.left(peer));
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    this.#deliver((target) => target.message(peer, frames));
  }

  dropped(peer: Peer, head: readonly Buffer[], why: string): void {
    this.#deliver((target) => target.dropped?.(peer, head, why));
  }

  unknownPeerLeft(): void {
    this.#target?.unknownPeerLeft?.();
  }

  attach(target: RouterConnections): void {
    this.#target = target;
    for (const act of this.#queued.splice(0)) act(target);
  }

  #deliver(act: (target: RouterConnections) => void): void {
    if (this.#target === undefined) this.#queued.push(act);
    else act(this.#target);
  }
}
