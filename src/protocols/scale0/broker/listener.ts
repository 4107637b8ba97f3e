/** The listener of Scale0: ports for clients and workers, and one that publishes to workers of the prototype. */
import { inUrl } from "../../../base/addresses.js";
import { now } from "../../../base/clock.js";
import { advertisedHost, type ListenerFactory } from "../../../broker/listeners/listener.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import {
  type BindOptions,
  openPublisher,
  openRouter,
  type Peer,
  type Publisher,
  type Router,
} from "../../zeromq/index.js";
import { ClientConnections } from "./client-connections.js";
import { Brokers, type Scale0Context } from "./context.js";
import { PeerSession } from "./peer-session.js";
import { WorkerConnections } from "./worker-connections.js";

/** How often the prototype's PING is published. */
const PUBLISH_MS = 1_000;

export const openScale0Listener: ListenerFactory = async (
  { core, guard, peerErrors, connections, settings },
  { host, ports: [clientPort = 0, workerPort = 0, publishPort = 0] },
) => {
  const name = host === "0.0.0.0" || host === "::" || host === "" ? await advertisedHost() : host;
  const uri = (port: number): string => `tcp://${inUrl(name)}:${port}`;
  const options = (port: number): BindOptions => ({
    host,
    port,
    guard: guard.of("scale0"),
    curve: settings.curve,
    onPeerError: (address, code, why) => peerErrors.report("scale0", address, code, why),
  });
  let publisher: Publisher | undefined;
  let clientRouter: Router | undefined;
  let workerRouter: Router | undefined;
  const context: Scale0Context = {
    core,
    pool: settings.pool ?? DEFAULT_POOL,
    requiresKeys: settings.curve !== undefined,
    // A peer can connect to one port before the next is open, but only if the operator has chosen the numbers.
    brokers: new Brokers(core, () => {
      const [client, worker] = [clientRouter?.port ?? clientPort, workerRouter?.port ?? workerPort];
      return { identity: `${name}:${worker}`, worker_uri: uri(worker), client_uri: uri(client) };
    }),
    onPeerError: (address, why, code = "LABORO_BAD_MESSAGE") => peerErrors.report("scale0", address, code, why),
  };
  const openSession = (router: () => Router | undefined) => (peer: Peer) =>
    new PeerSession(
      peer,
      (key, frames) => router()?.send(key, frames) ?? false,
      connections.open("scale0", peer.address),
      (why) => context.onPeerError(peer.address, why),
    );
  const clients = new ClientConnections(
    context,
    openSession(() => clientRouter),
  );
  const workers = new WorkerConnections(
    context,
    openSession(() => workerRouter),
    (...frames) => publisher?.publish(frames.map((frame) => Buffer.from(frame))),
  );
  const close = async (): Promise<void> => {
    workers.close();
    clients.close();
    await Promise.all([publisher?.close(), clientRouter?.close(), workerRouter?.close()]);
  };
  try {
    publisher = await openPublisher(options(publishPort));
    clientRouter = await openRouter(options(clientPort), clients);
    workerRouter = await openRouter(options(workerPort), workers);
  } catch (cause) {
    await close();
    throw cause;
  }
  const pings = setInterval(() => workers.pingPrototypes(String(Math.round(now()))), PUBLISH_MS);
  const unsubscribe = [
    core.config.onChanged(() => workers.configChanged()),
    core.group?.onChanged?.(() => workers.brokersChanged()),
    core.maintenance.onChanged((draining) => {
      workers.setDraining(draining);
      clients.setDraining(draining);
    }),
  ];
  return {
    urls: [clientRouter, workerRouter, publisher].map(({ port }) => uri(port)),
    close: async () => {
      clearInterval(pings);
      for (const stop of unsubscribe) stop?.();
      await close();
    },
  };
};
