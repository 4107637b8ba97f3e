/** The listeners of fuq on plain streams: `fuq` for version 2, by the letter of its text, and `fuq1` for version 1. */
import type { ListenerFactory } from "../../../broker/listeners/listener.js";
import { openTcpListener } from "../../../broker/listeners/tcp.js";
import { decodeMessage, encodeMessage, STREAM_LAYOUT } from "../codec.js";
import { decodeMessageV1, encodeMessageV1, type MessageV1, STREAM_LAYOUT_V1, type UnreadableV1 } from "../codec-v1.js";
import { describeMessage, describeMessageV1 } from "../describe.js";
import type { Message, Unreadable } from "../messages.js";
import { FuqWorkerSession } from "./session.js";
import type { FuqSessionOptions } from "./session-context.js";
import { FuqWorkerSessionV1 } from "./session-v1.js";
import { acceptStream, type StreamFormat } from "./stream.js";

const FUQ: StreamFormat<Message | Unreadable, Message> = {
  listener: "fuq",
  protocol: "fuq 2",
  layout: STREAM_LAYOUT,
  decode: decodeMessage,
  encode: encodeMessage,
  describe: describeMessage,
};

const FUQ1: StreamFormat<MessageV1 | UnreadableV1, MessageV1> = {
  listener: "fuq1",
  protocol: "fuq 1",
  layout: STREAM_LAYOUT_V1,
  decode: decodeMessageV1,
  encode: encodeMessageV1,
  describe: describeMessageV1,
};

export const openFuqListener: ListenerFactory = (context, address) => openFuqListenerWith({}, context, address);

/** With other limits than the usual ones. */
export const openFuqListenerWith = (
  options: Partial<FuqSessionOptions>,
  ...[context, listenAddress]: Parameters<ListenerFactory>
) =>
  openTcpListener("fuq", context, listenAddress, (socket, address, greeted) =>
    acceptStream(
      context,
      FUQ,
      socket,
      address,
      greeted,
      (session) => new FuqWorkerSession(session, { greeting: "foreman", original: false, ...options }),
    ),
  );

export const openFuq1Listener: ListenerFactory = (context, listenAddress) =>
  openTcpListener("fuq1", context, listenAddress, (socket, address, greeted) =>
    acceptStream(context, FUQ1, socket, address, greeted, (session) => new FuqWorkerSessionV1(session)),
  );
