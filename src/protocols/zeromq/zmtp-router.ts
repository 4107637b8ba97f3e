/**
 * A ROUTER socket in plain TypeScript. A peer is known by its identity. A second one that gives the same waits until the first was asked
 * whether it lives: if so, the second is refused, as ZeroMQ does; if not, it takes the place, so that a peer which connects again before its
 * old connection was missed is found.
 */
import { keyOf, type Peer, type Router, type RouterEars, type RouterOptions } from "./types.js";
import type { ZmtpConnection } from "./zmtp-connection.js";
import { listen } from "./zmtp-listener.js";

interface Present {
  readonly peer: Peer;
  readonly connection: ZmtpConnection;
}

/** The time that a peer has to show that it lives. */
const LIVES_MS = 1_000;

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
      /** What came while it waits. */
      const held: (readonly Buffer[])[] = [];
      const message = (frames: readonly Buffer[]): void => {
        if (mine === undefined) held.push(frames);
        // What a replaced connection still had in its bytes is nobody's.
        else if (present.get(mine.peer.key) === mine) ears.message(mine.peer, frames);
      };
      const enter = (one: Present): void => {
        const before = present.get(one.peer.key);
        if (before !== undefined) {
          leave(before);
          before.connection.destroy("another connection gave the same identity");
        }
        mine = one;
        present.set(one.peer.key, one);
        ears.joined?.(one.peer);
      };
      const wait = async (one: Present, before: Present): Promise<void> => {
        one.connection.pause();
        const lives = await before.connection.lives(LIVES_MS);
        if (!one.connection.open) return;
        if (lives) {
          options.complain?.(address, "LABORO_BAD_MESSAGE", "its identity is that of a peer that is there");
          one.connection.destroy("its identity is taken");
          return;
        }
        enter(one);
        for (const frames of held.splice(0)) message(frames);
        one.connection.resume();
      };
      return {
        opened: ({ identity: given, socketType }) => {
          const identity = given.length === 0 || given[0] === 0 ? automatic() : given;
          const one = { peer: { identity, key: keyOf(identity), address, socketType }, connection: connection() };
          const before = present.get(one.peer.key);
          if (before === undefined) enter(one);
          else wait(one, before).catch((cause: unknown) => one.connection.destroy(String(cause)));
        },
        message,
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
