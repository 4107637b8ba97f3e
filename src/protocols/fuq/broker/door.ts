/** The doors of fuq on plain streams: `fuq` for version 2, by the letter of its text, and `fuq1` for version 1. */
import type { OpenDoor } from "../../../broker/listeners/door.js";
import { openTcpDoor } from "../../../broker/listeners/tcp.js";
import { decodeMessage, encodeMessage, STREAM } from "../codec.js";
import { decodeMessageV1, encodeMessageV1, type MessageV1, STREAM_V1, type UnreadableV1 } from "../codec-v1.js";
import type { Message, Unreadable } from "../messages.js";
import { shown, shownV1 } from "../shown.js";
import type { ForemanOptions } from "./parts.js";
import { ForemanSession } from "./session.js";
import { SessionV1 } from "./session-v1.js";
import { acceptStream, type Form } from "./stream.js";

const FUQ: Form<Message | Unreadable, Message> = {
  door: "fuq",
  protocol: "fuq 2",
  layout: STREAM,
  decode: decodeMessage,
  encode: encodeMessage,
  shown,
};

const FUQ1: Form<MessageV1 | UnreadableV1, MessageV1> = {
  door: "fuq1",
  protocol: "fuq 1",
  layout: STREAM_V1,
  decode: decodeMessageV1,
  encode: encodeMessageV1,
  shown: shownV1,
};

export const openFuqDoor: OpenDoor = (context, place) => openFuqDoorWith({}, context, place);

/** With other numbers than the usual. */
export const openFuqDoorWith = (options: Partial<ForemanOptions>, ...[context, place]: Parameters<OpenDoor>) =>
  openTcpDoor("fuq", context, place, (socket, address) =>
    acceptStream(
      context,
      FUQ,
      socket,
      address,
      (parts) => new ForemanSession(parts, { greeting: "foreman", original: false, ...options }),
    ),
  );

export const openFuq1Door: OpenDoor = (context, place) =>
  openTcpDoor("fuq1", context, place, (socket, address) =>
    acceptStream(context, FUQ1, socket, address, (parts) => new SessionV1(parts)),
  );
