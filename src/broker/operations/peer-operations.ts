/**
 * Operations between the brokers of a group: each answers for itself only. They are not part of the API: only a link
 * that was opened by a broker may call them.
 */
import { JobId, WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { localLoad, localTaskLocation } from "../group/group-view.js";
import type { OperationContext } from "./operation.js";
import { localServices } from "./services.js";
import { nothing } from "./shared-fields.js";
import { assignedOf, runningFrom } from "./tasks.js";
import { drainOrStopHere, localWorkers, stopInput, undrainHere } from "./workers.js";

type PeerOperation = (core: Core, input: unknown, context: OperationContext) => Promise<object> | object;

function peerOperation<In>(
  schema: s.Schema<In, unknown>,
  act: (core: Core, input: In, context: OperationContext) => Promise<object> | object,
): PeerOperation {
  return (core, input, context) => act(core, schema.read(input, "input"), context);
}

const worker = s.object({ worker: s.mapped(s.text(), WorkerId) });
const job = s.mapped(s.integer(1, Number.MAX_SAFE_INTEGER), JobId);
const page = s.object({ job, from: s.count(), limit: s.integer(1, 10_000) });

export const PEER_OPERATIONS: ReadonlyMap<string, PeerOperation> = new Map([
  ["peer.workers", peerOperation(nothing, (core) => ({ workers: localWorkers(core) }))],
  ["peer.services", peerOperation(nothing, (core) => ({ services: localServices(core) }))],
  ["peer.load", peerOperation(nothing, (core) => localLoad(core))],
  [
    "peer.taskLocation",
    peerOperation(s.object({ job, index: s.count() }), (core, given) =>
      localTaskLocation(core, given.job, given.index),
    ),
  ],
  [
    "peer.running",
    peerOperation(page, (core, given) => ({
      tasks: runningFrom(core, given.job, given.from, given.limit),
      assigned: assignedOf(core, given.job),
    })),
  ],
  ["peer.drain", peerOperation(stopInput, (core, given) => drainOrStopHere(core, "drain", given))],
  ["peer.undrain", peerOperation(worker, (core, given) => undrainHere(core, given))],
  ["peer.stop", peerOperation(stopInput, (core, given) => drainOrStopHere(core, "stop", given))],
  [
    "peer.forgive",
    peerOperation(s.object({ name: s.text() }), async (core, { name }) => ({ known: await core.forgive(name) })),
  ],
  [
    "peer.hello",
    peerOperation(nothing, async (core) => {
      await core.membership?.refresh();
      return {};
    }),
  ],
  ["peer.joined", peerOperation(worker, (core, given) => core.moves?.joinedElsewhere(given.worker) ?? {})],
  ["peer.hasWorker", peerOperation(worker, (core, given) => ({ here: core.moves?.isHere(given.worker) ?? false }))],
  [
    "peer.stepBack",
    peerOperation(nothing, (_core, _given, { info }) => {
      info.stepBack?.();
      return { steppingBack: info.stepBack !== undefined };
    }),
  ],
]);
