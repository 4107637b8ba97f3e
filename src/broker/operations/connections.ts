/** What is said on a connection, for who wants to see it. */

import type { TracedConnection } from "../../base/traced-connections.js";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { limit } from "./shared-fields.js";
import { operation } from "./operation.js";

const PAGE = 500;

const shape = {
  id: s.count(),
  protocol: s.text(),
  address: s.text(),
  peer: s.described(s.text(), "what it is called, where it has said so"),
  opened: s.described(s.number(), "milliseconds since 1970"),
  recording: s.described(s.flag(), "somebody looks at it"),
} as const;

/** Fields of a message are whatever its protocol has. */
const anything: s.Schema<unknown> = { read: (value) => value, json: () => ({}) };

export const connections = operation({
  name: "conversations",
  role: "read",
  method: "GET",
  path: "/conversations",
  summary: "Connections on which something may be said, the newest first",
  input: s.object({
    from: s.withDefault(s.described(s.count(), "leave out so many"), 0),
    limit: limit(PAGE, 100),
    find: s.optional(s.described(s.text(), "part of its protocol, address or peer")),
  }),
  output: s.object({
    connections: s.list(s.object(shape), PAGE),
    total: s.described(s.count(), "how many were asked for"),
  }),
  perform: (_core, given, { info: broker }) => {
    const text = given.find?.toLowerCase();
    const all = [...broker.connections.all()].filter((one) => text === undefined || mentions(one, text)).reverse();
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
  at: s.described(s.number(), "milliseconds since 1970"),
  from: s.choice("peer", "broker"),
  name: s.described(s.text(), "by the protocol's own word"),
  fields: s.described(s.record(anything), "as a person would read them; long ones are cut"),
  bytes: s.optional(s.described(s.count(), "how long it was on the wire, where that is known")),
});

export const connection = operation({
  name: "conversation",
  // Bodies of other people's requests are among what is said.
  role: "admin",
  method: "GET",
  path: "/conversations/{id}",
  summary: "What was said on a connection since somebody began to look; the first look begins the recording",
  input: s.object({
    id: s.described(s.count(), "as conversations has it"),
    after: s.withDefault(s.described(s.count(), "the number of the last message that was seen"), 0),
  }),
  output: s.object({
    ...shape,
    closed: s.described(s.flag(), "the connection has ended"),
    messages: s.list(message, PAGE),
  }),
  perform: (_core, given, { info: broker }) => {
    const found = broker.connections.get(given.id);
    if (found === undefined) {
      throw new LaboroError("LABORO_BAD_INPUT", `conversation ${given.id} is not there, or is over and forgotten`);
    }
    const messages = found.messagesAfter(given.after);
    return { ...viewOf(found), closed: found.closed, messages };
  },
});
