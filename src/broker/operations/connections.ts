/** Connections, and their decoded messages. */

import { badInput } from "../../base/errors.js";
import type { TracedConnection } from "../../base/traced-connections.js";
import * as s from "../../model/schema.js";
import { operation } from "./operation.js";
import { limit } from "./shared-fields.js";

const PAGE = 500;

const shape = {
  id: s.count(),
  protocol: s.text(),
  address: s.text(),
  peer: s.described(s.text(), "its name, if it has sent one"),
  opened: s.number("milliseconds since 1970"),
  recording: s.flag("its messages are being recorded"),
} as const;

/** The fields of a message depend on its protocol. */
const anything: s.Schema<unknown> = { read: (value) => value, json: () => ({}) };

export const connections = operation({
  name: "connections",
  role: "read",
  method: "GET",
  path: "/connections",
  summary: "Open connections, the newest first",
  input: s.object({
    from: s.withDefault(s.count("skip this many"), 0),
    limit: limit(PAGE, 100),
    find: s.optional(s.described(s.text(), "part of its protocol, address or peer")),
  }),
  output: s.object({
    connections: s.list(s.object(shape), PAGE),
    total: s.count("how many match"),
  }),
  perform: (_core, given, { info }) => {
    const text = given.find?.toLowerCase();
    const all = [...info.connections.all()].filter((one) => text === undefined || mentions(one, text)).reverse();
    return { connections: all.slice(given.from, given.from + given.limit).map(viewOf), total: all.length };
  },
});

const mentions = ({ protocol, address, peer }: TracedConnection, text: string): boolean =>
  [protocol, address, peer].some((one) => one.toLowerCase().includes(text));

const viewOf = ({ id, protocol, address, peer, opened, recording }: TracedConnection) => ({
  id,
  protocol,
  address,
  peer,
  opened,
  recording,
});

const message = s.object({
  number: s.count(),
  at: s.number("milliseconds since 1970"),
  from: s.choice("peer", "broker"),
  name: s.described(s.text(), "in the words of the protocol"),
  fields: s.described(s.record(anything), "readable by people; long ones are cut"),
  bytes: s.optional(s.count("its size on the wire, if known")),
});

export const connection = operation({
  name: "connection",
  // The messages contain bodies of other people's requests.
  role: "admin",
  method: "GET",
  path: "/connections/{id}",
  summary: "The recorded messages of a connection; the first call starts the recording",
  input: s.object({
    id: s.count("as connections lists it"),
    after: s.withDefault(s.count("the number of the last message that was read"), 0),
  }),
  output: s.object({
    ...shape,
    closed: s.flag("the connection has ended"),
    messages: s.list(message, PAGE),
  }),
  perform: (_core, given, { info }) => {
    const found = info.connections.get(given.id);
    if (found === undefined) {
      throw badInput(`there is no connection ${given.id}: it was closed and is no longer kept`);
    }
    const messages = found.messagesAfter(given.after);
    return { ...viewOf(found), closed: found.closed, messages };
  },
});
