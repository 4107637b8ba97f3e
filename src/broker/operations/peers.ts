/**
 * What the brokers of a group ask each other: what is here, without asking on. Not part of the API: only a link that was opened by a broker
 * is answered these.
 */
import { JobId, WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { loadHere } from "../group/load.js";
import { whereIsItHere } from "../group/whereabouts.js";
import type { Context } from "./operation.js";
import { servicesHere } from "./services.js";
import { runningFrom } from "./tasks.js";
import { sendAway, workersHere } from "./workers.js";

type ForPeer = (core: Core, input: unknown, context: Context) => Promise<object> | object;

function forPeer<In>(
  schema: s.Schema<In, unknown>,
  act: (core: Core, input: In, context: Context) => Promise<object> | object,
): ForPeer {
  return (core, input, context) => act(core, schema.read(input, "input"), context);
}

const nothing = s.object({});
const worker = s.object({ worker: s.mapped(s.text(), WorkerId) });
const job = s.mapped(s.integer(1, Number.MAX_SAFE_INTEGER), JobId);
const page = s.object({ job, from: s.count(), limit: s.integer(1, 10_000) });

export const PEER_OPERATIONS: ReadonlyMap<string, ForPeer> = new Map([
  ["peer.workers", forPeer(nothing, (core) => ({ workers: workersHere(core) }))],
  ["peer.services", forPeer(nothing, (core) => ({ services: servicesHere(core) }))],
  ["peer.load", forPeer(nothing, (core) => loadHere(core))],
  [
    "peer.whereabouts",
    forPeer(s.object({ job, index: s.count() }), (core, given) => whereIsItHere(core, given.job, given.index)),
  ],
  ["peer.running", forPeer(page, (core, given) => ({ tasks: runningFrom(core, given.job, given.from, given.limit) }))],
  ["peer.drain", forPeer(worker, (core, given) => sendAway(core, "drain", given.worker))],
  ["peer.stop", forPeer(worker, (core, given) => sendAway(core, "stop", given.worker))],
  [
    "peer.forgive",
    forPeer(s.object({ name: s.text() }), async (core, { name }) => ({ known: await core.forgive(name) })),
  ],
  [
    "peer.hello",
    forPeer(nothing, async (core) => {
      await core.membership?.refresh();
      return {};
    }),
  ],
  ["peer.joined", forPeer(worker, (core, given) => core.moves?.joinedElsewhere(given.worker) ?? {})],
  ["peer.has", forPeer(worker, (core, given) => ({ here: core.moves?.isHere(given.worker) ?? false }))],
  [
    "peer.stepBack",
    forPeer(nothing, (_core, _given, { broker }) => {
      broker.stepBack?.();
      return { steppingBack: broker.stepBack !== undefined };
    }),
  ],
]);
