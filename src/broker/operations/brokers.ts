/** The brokers of a group: who there is, and sending a fallback back to its place. */
import { hostname } from "node:os";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { ownHeartbeatInfo, nameOf } from "../group/heartbeat-info.js";
import type { LiveMember } from "../group/membership.js";
import { nothing } from "./shared-fields.js";
import { type BrokerInfo, operation } from "./operation.js";

const MOST = 1_000;

const brokerView = s.object({
  name: s.described(s.text(), "host and port of its main door"),
  identity: s.described(s.text(), "the same over restarts"),
  self: s.described(s.flag(), "the one that was asked"),
  state: s.described(s.choice("open", "draining", "standby"), "standby: a fallback whose doors are closed"),
  fallback: s.described(s.flag(), "it opens only when no other broker is there"),
  epoch: s.described(s.count(), "rises with every start of a broker on this store"),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  started: s.described(s.number(), "milliseconds since 1970"),
  heartbeatAgeMs: s.described(s.number(), "how long ago it gave its last sign of life"),
  commitMs: s.described(s.number(), "how long its latest commits took"),
  listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.described(s.count(), "that are connected to it"),
  slots: s.object({ total: s.number(), free: s.number() }),
  services: s.list(s.object({ pool: s.text(), service: s.text() }), 100_000),
});

type BrokerView = s.ReadType<typeof brokerView>;

export const brokers = operation({
  name: "brokers",
  role: "read",
  method: "GET",
  path: "/brokers",
  summary: "The brokers that share the store; a broker that has it to itself tells of itself",
  input: nothing,
  output: s.object({ brokers: s.list(brokerView, MOST) }),
  perform: async (core, _given, { info: broker }) => {
    if (core.membership === undefined) return { brokers: [alone(core, broker)] };
    await core.membership.refresh();
    return { brokers: core.membership.liveMembers.map((member) => viewOf(core, member)) };
  },
});

function viewOf(core: Core, member: LiveMember): BrokerView {
  const here = member.epoch === core.state.epoch;
  // What it said with its last heartbeat is out of date here only.
  const fresh = here && core.membership !== undefined ? ownHeartbeatInfo(core, core.membership.self) : member;
  const { epoch, started, heartbeatAgeMs: lagMs } = member;
  return { ...fresh, self: here, epoch, started, heartbeatAgeMs: lagMs };
}

function alone(core: Core, info: BrokerInfo): BrokerView {
  const listeners = info.listeners();
  const self = { identity: nameOf(listeners), version: info.version, fallback: false, doors: () => listeners };
  const { epoch } = core.state;
  return { ...ownHeartbeatInfo(core, self), host: hostname(), self: true, epoch, started: core.started, heartbeatAgeMs: 0 };
}

export const stepBack = operation({
  name: "stepBack",
  role: "admin",
  method: "POST",
  path: "/brokers/{broker}/step-back",
  summary: "Let a fallback that stands in for others close its doors again; its workers go to those others",
  input: s.object({ broker: s.described(s.text(), "its name, or its identity") }),
  output: s.object({ broker: s.text() }),
  perform: async (core, given, { info: broker }) => {
    await core.membership?.refresh();
    const living = core.membership?.liveMembers ?? [];
    const found = living.find(({ name, identity }) => name === given.broker || identity === given.broker);
    if (found === undefined) throw refused(`there is no broker ${given.broker}; laboro brokers lists them`);
    if (!found.fallback) throw refused(`${found.name} is no fallback: stop it, or drain it`);
    if (found.state === "standby") throw refused(`${found.name} stands by already`);
    if (!living.some(({ fallback, state }) => !fallback && state === "open")) {
      throw refused(`${found.name} is the only broker there is: start another one first`);
    }
    if (found.epoch === core.state.epoch) broker.stepBack?.();
    else await core.peers?.ask(found, "peer.stepBack", {});
    return { broker: found.name };
  },
});

const refused = (why: string): LaboroError => new LaboroError("LABORO_BAD_INPUT", why);
