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
  /** Closes all connections, at both ends. */
  cut(): void;
  /** All bytes from now on arrive later by this time, in order. */
  delay(ms: number): void;
  /** Each connection passes so many bytes more, and is then cut, wherever in a message that is. */
  cutAfter(bytes: number): void;
  close(): Promise<void>;
}

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
  bytesLeft: number;
}

export async function proxyTo(port: number): Promise<Proxy> {
  const pairs = new Set<Pair>();
  const swallowed = new Set<Direction>();
  let accepted = 0;
  let delayMs = 0;

  const pass = (pair: Pair, to: Socket, bytes: Buffer): void => {
    const passed = bytes.subarray(0, pair.bytesLeft);
    pair.bytesLeft -= passed.length;
    if (delayMs > 0) setTimeout(() => to.write(passed), delayMs);
    else to.write(passed);
    if (pair.bytesLeft > 0) return;
    pair.near.destroy();
    pair.far.destroy();
  };

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
    const pair = { near, far, bytesLeft: Number.POSITIVE_INFINITY };
    pairs.add(pair);
    join(
      near,
      far,
      (bytes) => pass(pair, far, bytes),
      () => swallowed.has("up"),
    );
    join(
      far,
      near,
      (bytes) => pass(pair, near, bytes),
      () => swallowed.has("down"),
    );
    const forget = (): void => {
      if (near.destroyed && far.destroyed) pairs.delete(pair);
    };
    near.once("close", forget);
    far.once("close", forget);
    apply(pair);
  });

  const cut = (): void => {
    for (const { near, far } of pairs) {
      near.destroy();
      far.destroy();
    }
  };

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
    cut,
    delay: (ms) => {
      delayMs = ms;
    },
    cutAfter: (bytes) => {
      for (const pair of pairs) pair.bytesLeft = bytes;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        cut();
      }),
  };
}

function join(from: Socket, to: Socket, pass: (bytes: Buffer) => void, holed: () => boolean): void {
  from.setNoDelay(true);
  from.on("error", () => {});
  from.on("data", pass);
  from.on("end", () => to.end());
  from.on("close", () => {
    if (!holed()) to.destroy();
  });
}
