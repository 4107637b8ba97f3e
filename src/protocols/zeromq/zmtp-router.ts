/**
 * A ROUTER socket in plain TypeScript. A peer is known by its identity. When a second peer gives the same identity, it waits until the
 * first has been sent a PING. If the first answers, the second is refused, as ZeroMQ does. If not, the second replaces it, so that a peer
 * can reconnect before the loss of its old connection was noticed.
 */
import { keyOf, type Peer, type Router, type RouterListener, type RouterOptions } from "./types.js";
import { listen } from "./zmtp-bound-socket.js";
import type { ZmtpConnection } from "./zmtp-connection.js";

interface ConnectedPeer {
  readonly peer: Peer;
  readonly connection: ZmtpConnection;
}

/** How long a peer has to answer a PING. */
const LIVENESS_TIMEOUT_MS = 1_000;

export async function openZmtpRouter(options: RouterOptions, listener: RouterListener): Promise<Router> {
  const peers = new Map<string, ConnectedPeer>();
  let numbers = Math.floor(Math.random() * 2 ** 32);

  /** As ZeroMQ makes them: five bytes, the first one zero, which no peer may give itself. */
  const automatic = (): Buffer => {
    const identity = Buffer.alloc(5);
    do {
      numbers = (numbers + 1) >>> 0;
      identity.writeUInt32BE(numbers, 1);
    } while (peers.has(keyOf(identity)));
    return identity;
  };

  const leave = (one: ConnectedPeer): void => {
    if (peers.get(one.peer.key) !== one) return;
    peers.delete(one.peer.key);
    listener.left?.(one.peer);
  };

  const name = options.identity ?? (() => "");
  const socket = await listen(
    options,
    {
      socketType: "ROUTER",
      accepts: ["DEALER", "REQ", "ROUTER"],
      identity: (peer, reached) => Buffer.from(name(peer, reached), "latin1"),
    },
    (connection, address) => {
      let mine: ConnectedPeer | undefined;
      /** Messages that came while it waits. */
      const held: (readonly Buffer[])[] = [];
      const message = (frames: readonly Buffer[]): void => {
        if (mine === undefined) held.push(frames);
        // Messages that a replaced connection had already received are dropped.
        else if (peers.get(mine.peer.key) === mine) listener.message(mine.peer, frames);
      };
      const enter = (one: ConnectedPeer): void => {
        mine = one;
        peers.set(one.peer.key, one);
        listener.joined?.(one.peer);
      };
      const wait = async (one: ConnectedPeer): Promise<void> => {
        one.connection.pause();
        // Several may wait: when the first of them takes the place, the others wait for that one.
        for (let before = peers.get(one.peer.key); before !== undefined; before = peers.get(one.peer.key)) {
          const alive = await before.connection.isAlive(LIVENESS_TIMEOUT_MS);
          if (!one.connection.open) return;
          if (alive) {
            options.onPeerError?.(address, "LABORO_BAD_MESSAGE", "its identity is that of a peer that is there");
            one.connection.destroy("its identity is taken");
            return;
          }
          if (peers.get(one.peer.key) === before) {
            leave(before);
            before.connection.destroy("another connection gave the same identity");
          }
        }
        enter(one);
        for (const frames of held.splice(0)) message(frames);
        one.connection.resume();
      };
      return {
        opened: ({ identity: given, socketType }) => {
          const identity = given.length === 0 || given[0] === 0 ? automatic() : given;
          const one = { peer: { identity, key: keyOf(identity), address, socketType }, connection: connection() };
          if (!peers.has(one.peer.key)) enter(one);
          else wait(one).catch((cause: unknown) => one.connection.destroy(String(cause)));
        },
        message,
        dropped: (head, why) => {
          if (mine !== undefined && peers.get(mine.peer.key) === mine) listener.dropped?.(mine.peer, head, why);
        },
        closed: () => {
          if (mine !== undefined) leave(mine);
        },
      };
    },
  );
  return {
    ...socket,
    send: (key, frames) => peers.get(key)?.connection.send(frames) ?? false,
  };
}
