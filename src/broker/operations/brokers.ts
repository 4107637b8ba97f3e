/**
 * The brokers of a group: listing them, and letting a fallback step back.
 *
 * Operations between the brokers of a group: each answers for itself only. They are not part of the API: only a link
 * that was opened by a broker may call them.
 */
import { hostname } from "node:os";
import { badInput } from "../../base/errors.js";
import { JobId, WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { localLoad, localTaskLocation } from "../group/group-view.js";
import { type LiveMember, nameOf, ownHeartbeatInfo } from "../group/membership.js";
import { type BrokerInfo, nothing, type OperationContext, operation } from "./operation.js";
import { localServices } from "./services.js";
import { assignedOf, runningFrom } from "./tasks.js";
import { drainOrStopHere, localWorkers, stopInput, undrainHere } from "./workers.js";

const MOST = 1_000;

const brokerView = s.object({
  name: s.described(s.text(), "host and port of its main listener"),
  identity: s.described(s.text(), "the same over restarts"),
  self: s.flag("the broker that answers"),
  state: s.described(s.choice("open", "draining", "standby"), "standby: a fallback whose listeners are closed"),
  fallback: s.flag("it opens only when no other broker is there"),
  epoch: s.count("rises with every start of a broker on this store"),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  started: s.number("milliseconds since 1970"),
  heartbeatAgeMs: s.number("the age of its last heartbeat"),
  commitMs: s.number("average duration of its latest commits"),
  listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.count("that are connected to it"),
  slots: s.object({ total: s.number(), free: s.number() }),
  services: s.list(s.object({ pool: s.text(), service: s.text() }), 100_000),
});

type BrokerView = s.ReadType<typeof brokerView>;

export const brokers = operation({
  name: "brokers",
  role: "read",
  method: "GET",
  path: "/brokers",
  summary: "The brokers that share the store; a single broker lists itself",
  input: nothing,
  output: s.object({ brokers: s.list(brokerView, MOST) }),
  perform: async (core, _given, { info }) => {
    if (core.membership === undefined) return { brokers: [singleBroker(core, info)] };
    await core.membership.refresh();
    return { brokers: core.membership.liveMembers.map((member) => viewOf(core, member)) };
  },
});

function viewOf(core: Core, member: LiveMember): BrokerView {
  const self = member.epoch === core.state.epoch;
  // For this broker there is newer information than its last heartbeat.
  const fresh = self && core.membership !== undefined ? ownHeartbeatInfo(core, core.membership.self) : member;
  const { epoch, started, heartbeatAgeMs } = member;
  return { ...fresh, self, epoch, started, heartbeatAgeMs };
}

function singleBroker(core: Core, info: BrokerInfo): BrokerView {
  const listeners = info.listeners();
  const self = { identity: nameOf(listeners), version: info.version, fallback: false, listeners: () => listeners };
  const { epoch } = core.state;
  return {
    ...ownHeartbeatInfo(core, self),
    host: hostname(),
    self: true,
    epoch,
    started: core.started,
    heartbeatAgeMs: 0,
  };
}

export const stepBack = operation({
  name: "stepBack",
  role: "admin",
  method: "POST",
  path: "/brokers/{broker}/step-back",
  summary: "Let a fallback that stands in for others close its listeners again; its workers go to the other brokers",
  input: s.object({ broker: s.described(s.text(), "its name, or its identity") }),
  output: s.object({ broker: s.text() }),
  perform: async (core, given, { info }) => {
    await core.membership?.refresh();
    const members = core.membership?.liveMembers ?? [];
    const found = members.find(({ name, identity }) => name === given.broker || identity === given.broker);
    if (found === undefined) throw badInput(`there is no broker ${given.broker}; laboro brokers lists them`);
    if (!found.fallback) throw badInput(`${found.name} is no fallback: stop it, or drain it`);
    if (found.state === "standby") throw badInput(`${found.name} stands by already`);
    if (!members.some(({ fallback, state }) => !fallback && state === "open")) {
      throw badInput(`${found.name} is the only broker there is: start another one first`);
    }
    if (found.epoch === core.state.epoch) info.stepBack?.();
    else await core.peers?.ask(found, "peer.stepBack", {});
    return { broker: found.name };
  },
});

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
