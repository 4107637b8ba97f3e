/** Who may come in with CURVE: the ZAP handler (RFC 27) that ZeroMQ asks, inside this process, for every connection of a CURVE server. */
import { type Context, Router as ZmqRouter } from "zeromq";
import { z85 } from "../../base/curve-key.js";

const ENDPOINT = "inproc://zeromq.zap.01";

export interface ZapEvents {
  /** By the peer's identity, where it gave one. */
  admitted(identity: Buffer, address: string): void;
  refused(address: string, key: string): void;
}

/** Answers until the context ends. One a context: it is the context's. */
export async function openZapHandler(
  context: Context,
  known: readonly string[],
  admission: ZapEvents,
): Promise<() => void> {
  const allowed = new Set(known);
  const socket = new ZmqRouter({ context, linger: 0 });
  await socket.bind(ENDPOINT);
  const answer = async (): Promise<void> => {
    for await (const frames of socket) {
      const [asker, , version, id, , address, identity, mechanism, credentials] = frames;
      const key = credentials === undefined ? "" : z85(credentials);
      const fits = version?.toString() === "1.0" && mechanism?.toString() === "CURVE";
      const good = fits && allowed.has(key);
      const place = address?.toString() ?? "unknown";
      if (good) admission.admitted(identity ?? Buffer.alloc(0), place);
      else admission.refused(place, key);
      const status = good ? ["200", "OK", key, ""] : ["400", "this key is not known here", "", ""];
      await socket.send([asker ?? "", "", "1.0", id ?? "", ...status]);
    }
  };
  // It ends with the socket.
  void answer().catch(() => {});
  return () => socket.close();
}
