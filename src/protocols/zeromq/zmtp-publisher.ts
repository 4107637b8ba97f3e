/**
 * A PUB socket in plain TypeScript. Subscribers are kept by topic prefix, so that a message costs one lookup for each length that a
 * prefix has.
 */
import { type BindOptions, keyOf, type Publisher } from "./types.js";
import { listen } from "./zmtp-bound-socket.js";
import type { ZmtpConnection } from "./zmtp-connection.js";
import { encodeMessage } from "./zmtp-frames.js";

/** Of one subscriber. */
const MAX_SUBSCRIPTIONS = 10_000;
const MAX_TOPIC_BYTES = 1024;

const SUBSCRIBE = 1;
const CANCEL = 0;

export async function openZmtpPublisher(options: BindOptions): Promise<Publisher> {
  const subscribers = new Map<string, Set<ZmtpConnection>>();
  /** How many prefixes there are of each length. */
  const lengths = new Map<number, number>();

  const add = (topic: string, connection: ZmtpConnection): void => {
    let those = subscribers.get(topic);
    if (those === undefined) {
      those = new Set();
      subscribers.set(topic, those);
      lengths.set(topic.length, (lengths.get(topic.length) ?? 0) + 1);
    }
    those.add(connection);
  };

  const remove = (topic: string, connection: ZmtpConnection): void => {
    const those = subscribers.get(topic);
    if (those?.delete(connection) !== true || those.size > 0) return;
    subscribers.delete(topic);
    const left = (lengths.get(topic.length) ?? 1) - 1;
    if (left === 0) lengths.delete(topic.length);
    else lengths.set(topic.length, left);
  };

  const limits = { ...options.limits, messageBytes: 64 * 1024, frames: 1 };
  const listener = await listen(
    { ...options, limits },
    { socketType: "PUB", accepts: ["SUB", "XSUB"], identity: () => Buffer.alloc(0) },
    (connection, address) => {
      /** How often it has subscribed to each. */
      const topics = new Map<string, number>();
      const change = (wanted: boolean, body: Buffer): void => {
        const topic = keyOf(body);
        const times = (topics.get(topic) ?? 0) + (wanted ? 1 : -1);
        if (times < 0) return;
        if (times === 0) {
          topics.delete(topic);
          remove(topic, connection());
        } else if (topics.has(topic) || (topics.size < MAX_SUBSCRIPTIONS && body.length <= MAX_TOPIC_BYTES)) {
          topics.set(topic, times);
          add(topic, connection());
        } else {
          options.onPeerError?.(address, "LABORO_BAD_MESSAGE", "more subscriptions than are kept, or too long a one");
        }
      };
      return {
        opened: () => {},
        // ZMTP 3.0 subscribes by messages, 3.1 by commands.
        message: ([frame]) => {
          if (frame?.[0] === SUBSCRIBE || frame?.[0] === CANCEL) change(frame[0] === SUBSCRIBE, frame.subarray(1));
        },
        command: (name, body) => {
          if (name === "SUBSCRIBE" || name === "CANCEL") change(name === "SUBSCRIBE", body);
        },
        closed: () => {
          for (const topic of topics.keys()) remove(topic, connection());
        },
      };
    },
  );
  return {
    ...listener,
    publish: (frames) => {
      const topic = keyOf(frames[0] ?? Buffer.alloc(0));
      const reached = new Set<ZmtpConnection>();
      for (const length of lengths.keys()) {
        if (length > topic.length) continue;
        for (const connection of subscribers.get(topic.slice(0, length)) ?? []) reached.add(connection);
      }
      if (reached.size === 0) return;
      const bytes = encodeMessage(frames);
      for (const connection of reached) connection.sendBytes(bytes);
    },
  };
}
