/**
 * A ROUTER socket in plain TypeScript. A peer is known by its identity; a second one that gives the same takes its place, so that one that
 * connects again before its old connection was missed is found.
 */
import { keyOf, type Peer, type Router, type RouterEars, type RouterOptions } from "./types.js";
import type { ZmtpConnection } from "./zmtp-connection.js";
import { listen } from "./zmtp-listener.js";

interface Present {
  readonly peer: Peer;
  readonly connection: ZmtpConnection;
}

export async function openZmtpRouter(options: RouterOptions, ears: RouterEars): Promise<Router> {
  const present = new Map<string, Present>();
  let numbers = Math.floor(Math.random() * 2 ** 32);

  /** As ZeroMQ makes them: five bytes, the first one zero, which no peer may give itself. */
  const automatic = (): Buffer => {
    const identity = Buffer.alloc(5);
    do {
      numbers = (numbers + 1) >>> 0;
      identity.writeUInt32BE(numbers, 1);
    } while (present.has(keyOf(identity)));
    return identity;
  };

  const leave = (one: Present): void => {
    if (present.get(one.peer.key) !== one) return;
    present.delete(one.peer.key);
    ears.left?.(one.peer);
  };

  const name = options.identity ?? (() => "");
  const listener = await listen(
    options,
    {
      socketType: "ROUTER",
      accepts: ["DEALER", "REQ", "ROUTER"],
      identity: (peer, reached) => Buffer.from(name(peer, reached), "latin1"),
    },
    (connection, address) => {
      let mine: Present | undefined;
      return {
        opened: ({ identity: given, socketType }) => {
          const identity = given.length === 0 || given[0] === 0 ? automatic() : given;
          const one = { peer: { identity, key: keyOf(identity), address, socketType }, connection: connection() };
          const before = present.get(one.peer.key);
          if (before !== undefined) {
            leave(before);
            before.connection.destroy("another connection gave the same identity");
          }
          mine = one;
          present.set(one.peer.key, one);
          ears.joined?.(one.peer);
        },
        message: (frames) => {
          // What a replaced connection still had in its bytes is nobody's.
          if (mine !== undefined && present.get(mine.peer.key) === mine) ears.message(mine.peer, frames);
        },
        closed: () => {
          if (mine !== undefined) leave(mine);
        },
      };
    },
  );
  return {
    ...listener,
    send: (key, frames) => present.get(key)?.connection.send(frames) ?? false,
    drop: (key) => present.get(key)?.connection.destroy("it was dropped"),
  };
}
