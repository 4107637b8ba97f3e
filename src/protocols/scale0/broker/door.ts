/**
 * A Scale0 broker: three ports, for clients, for workers, and one on which workers of the prototype's dialect hear what is
 * published. Each side is a file of its own; here they are opened, and told what concerns all of them.
 */
import { now } from "../../../base/clock.js";
import { inUrl } from "../../../base/loopback.js";
import type { OpenDoor } from "../../../broker/listeners/door.js";
import { ownName } from "../../../broker/listeners/own-name.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import {
  type BindOptions,
  openPublisher,
  openRouter,
  type Peer,
  type Router,
  type RouterEars,
} from "../../zeromq/index.js";
import { loadConfigFormats } from "../config-formats.js";
import { Brokers } from "./brokers.js";
import { ClientSide } from "./client-side.js";
import type { Parts } from "./parts.js";
import type { Publish } from "./prototype.js";
import { Voice } from "./voice.js";
import { WorkerSide } from "./worker-side.js";

/** How often the prototype's PING is said. */
const PUBLISH_MS = 1_000;

export const openScale0Door: OpenDoor = async ({ core, complaints, conversations, settings }, { host, ports }) => {
  const options = (port = 0): BindOptions => ({
    host,
    port,
    ...(settings.curve === undefined ? {} : { curve: settings.curve }),
    complain: (address, code, why) => complaints.about("scale0", address, code, why),
  });
  const formats = await loadConfigFormats();
  const clientEars = new Ears();
  const workerEars = new Ears();
  const { publisher, clients, workers, close } = await openSockets(options, ports, clientEars, workerEars);
  const name = host === "0.0.0.0" || host === "::" || host === "" ? await ownName() : host;
  const uri = ({ port }: { readonly port: number }): string => `tcp://${inUrl(name)}:${port}`;
  const parts: Parts = {
    core,
    pool: settings.pool ?? DEFAULT_POOL,
    keys: settings.curve !== undefined,
    brokers: new Brokers(core, {
      identity: `${name}:${workers.port}`,
      worker_uri: uri(workers),
      client_uri: uri(clients),
    }),
    formats,
    complain: (address, why, code = "LABORO_BAD_MESSAGE") => complaints.about("scale0", address, code, why),
  };
  const voiceOf = (router: Router) => (peer: Peer) =>
    new Voice(peer, router, conversations.begin("scale0", peer.address));
  const publish: Publish = (...frames) => publisher.publish(frames.map((frame) => Buffer.from(frame)));
  const clientSide = new ClientSide(parts, voiceOf(clients));
  const workerSide = new WorkerSide(parts, voiceOf(workers), publish);
  workerEars.belongTo(workerSide);
  clientEars.belongTo(clientSide);
  const pings = setInterval(() => workerSide.pingPrototypes(String(Math.round(now()))), PUBLISH_MS);
  const unlisten = [
    core.config.onChanged(() => workerSide.configChanged()),
    core.maintenance.onChanged((draining) => {
      workerSide.draining(draining);
      clientSide.draining(draining);
    }),
  ];
  return {
    urls: [uri(clients), uri(workers), uri(publisher)],
    close: async () => {
      clearInterval(pings);
      for (const stop of unlisten) stop();
      workerSide.close();
      clientSide.close();
      await close();
    },
  };
};

/** All three or none. */
async function openSockets(
  options: (port: number | undefined) => BindOptions,
  [clientPort, workerPort, publishPort]: readonly number[],
  clientEars: RouterEars,
  workerEars: RouterEars,
) {
  const open: { close(): Promise<void> }[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(open.map((socket) => socket.close()));
  };
  try {
    const publisher = await openPublisher(options(publishPort));
    open.push(publisher);
    const clients = await openRouter(options(clientPort), clientEars);
    open.push(clients);
    const workers = await openRouter(options(workerPort), workerEars);
    open.push(workers);
    return { publisher, clients, workers, close };
  } catch (cause) {
    await close();
    throw cause;
  }
}

type Side = RouterEars & Required<Pick<RouterEars, "joined" | "left">>;

/** What is said before all ports are open is heard when they are. */
class Ears implements RouterEars {
  #side: Side | undefined;
  readonly #early: ((side: Side) => void)[] = [];

  joined(peer: Peer): void {
    this.#do((side) => side.joined(peer));
  }

  left(peer: Peer): void {
    this.#do((side) => side.left(peer));
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    this.#do((side) => side.message(peer, frames));
  }

  doubted(): void {
    this.#side?.doubted?.();
  }

  belongTo(side: Side): void {
    this.#side = side;
    for (const act of this.#early.splice(0)) act(side);
  }

  #do(act: (side: Side) => void): void {
    if (this.#side === undefined) this.#early.push(act);
    else act(this.#side);
  }
}
