/**
 * Events as they happen (text/event-stream). Each follower has a position in the broker's ring and is sent the events after it, as fast as it
 * reads; nothing else is buffered for it. A follower that the ring overtakes gets `missed`; one that does not read at all is dropped.
 */
import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { LaboroError } from "../../base/errors.js";
import { type Fields, integer } from "../../model/input.js";
import type { Core } from "../core.js";
import type { BrokerEvent } from "../events.js";
import { events as eventsOperation } from "../operations/events.js";
import { authorizeAndRead } from "../operations/index.js";
import type { OperationContext } from "../operations/operation.js";

const HEARTBEAT_MS = 15_000;
/** Bytes that are buffered for a slow follower. */
const BUFFER = 256 * 1024;
/** A follower that reads nothing for this many heartbeats is dropped. */
const MAX_STUCK_HEARTBEATS = 2;
const FOLLOWERS = 1_000;
const PAGE = 100;

const following = new WeakMap<Core, number>();

/** Of each event, made once for all its followers. */
const texts = new WeakMap<BrokerEvent, string>();

function textOf(event: BrokerEvent): string {
  const known = texts.get(event);
  if (known !== undefined) return known;
  const text = `id: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`;
  texts.set(event, text);
  return text;
}

export function streamEvents(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  input: Fields,
  context: OperationContext,
): FastifyReply {
  const given = authorizeAndRead(eventsOperation, input, context.role);
  const seen = request.headers["last-event-id"];
  const after =
    typeof seen === "string" ? integer(Number(seen), "last-event-id", 0, Number.MAX_SAFE_INTEGER) : given.after;
  const followers = following.get(core) ?? 0;
  if (followers >= FOLLOWERS) throw new LaboroError("LABORO_QUEUE_FULL", `${followers} follow the events already`);
  following.set(core, followers + 1);
  reply.hijack();
  reply.raw.once("close", () => following.set(core, (following.get(core) ?? 1) - 1));
  follow(core, reply.raw, after ?? core.events.last, given.job);
  return reply;
}

function follow(core: Core, response: ServerResponse, start: number, job: number | undefined): void {
  response.writeHead(200, {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-accel-buffering": "no",
  });
  response.write(": laboro\n\n");
  let after = start;
  let stuck = 0;
  const pump = (): void => {
    while (response.writableLength < BUFFER) {
      const { events, last, missedUntil: until } = core.events.after(after, PAGE, job);
      // Its id is that of the last event that is lost: whoever continues there gets all that are kept.
      const missed =
        until === undefined ? "" : `event: missed\nid: ${until}\ndata: ${JSON.stringify({ after, until })}\n\n`;
      if (missed !== "" || events.length > 0) response.write(missed + events.map(textOf).join(""));
      after = last;
      if (after >= core.events.last) return;
    }
  };
  const heartbeat = setInterval(() => {
    if (response.writableLength < BUFFER) {
      stuck = 0;
      response.write(": heartbeat\n\n");
    } else if (++stuck >= MAX_STUCK_HEARTBEATS) response.destroy();
  }, HEARTBEAT_MS);
  heartbeat.unref();
  const unsubscribe = core.events.followers.add(pump);
  response.on("drain", pump);
  response.once("close", () => {
    clearInterval(heartbeat);
    unsubscribe();
  });
  pump();
}
