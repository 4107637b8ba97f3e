/**
 * A network between a worker and a broker that can turn into a black hole. Bytes that go into the hole, and closes, wait there; they
 * arrive when it heals, as TCP would send them again. New connections are accepted all the while.
 */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** `up` is towards the broker. */
export type Direction = "up" | "down";

export interface Proxy {
  readonly url: string;
  /** How many connections it has accepted. */
  readonly accepted: number;
  swallow(directions: readonly Direction[]): void;
  heal(): void;
  /** Ends all connections at once, at both ends. What waits in the hole is gone. */
  cut(): void;
  close(): Promise<void>;
}

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
}

export async function proxyTo(port: number): Promise<Proxy> {
  const pairs = new Set<Pair>();
  const swallowed = new Set<Direction>();
  let accepted = 0;

  const apply = ({ near, far }: Pair): void => {
    for (const [direction, from] of [
      ["up", near],
      ["down", far],
    ] as const) {
      if (swallowed.has(direction)) from.pause();
      else from.resume();
    }
  };

  const server = createServer({ allowHalfOpen: true }, (near) => {
    accepted++;
    const far = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const pair = { near, far };
    pairs.add(pair);
    join(near, far, () => swallowed.has("up"));
    join(far, near, () => swallowed.has("down"));
    const forget = (): void => {
      if (near.destroyed && far.destroyed) pairs.delete(pair);
    };
    near.once("close", forget);
    far.once("close", forget);
    apply(pair);
  });

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get accepted() {
      return accepted;
    },
    swallow: (directions) => {
      for (const direction of directions) swallowed.add(direction);
      for (const pair of pairs) apply(pair);
    },
    heal: () => {
      swallowed.clear();
      for (const pair of pairs) {
        apply(pair);
        if (pair.near.destroyed) pair.far.destroy();
        if (pair.far.destroyed) pair.near.destroy();
      }
    },
    cut: () => {
      for (const { near, far } of pairs) {
        near.destroy();
        far.destroy();
      }
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const { near, far } of pairs) {
          near.destroy();
          far.destroy();
        }
      }),
  };
}

function join(from: Socket, to: Socket, holed: () => boolean): void {
  from.setNoDelay(true);
  from.on("error", () => {});
  from.on("data", (bytes) => to.write(bytes));
  from.on("end", () => to.end());
  from.on("close", () => {
    if (!holed()) to.destroy();
  });
}
