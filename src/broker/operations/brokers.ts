/** The brokers of a group: who there is, and sending a fallback back to its place. */
import { hostname } from "node:os";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { aboutSelf, nameOf } from "../group/about.js";
import type { LivingMember } from "../group/membership.js";
import { nothing } from "./members.js";
import { type BrokerFace, operation } from "./operation.js";

const MOST = 1_000;

const brokerView = s.object({
  name: s.described(s.text(), "host and port of its main door"),
  identity: s.described(s.text(), "the same over restarts"),
  here: s.described(s.flag(), "the one that was asked"),
  state: s.described(s.choice("open", "draining", "standby"), "standby: a fallback whose doors are closed"),
  fallback: s.described(s.flag(), "it opens only when no other broker is there"),
  epoch: s.described(s.count(), "rises with every start of a broker on this store"),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  started: s.described(s.number(), "milliseconds since 1970"),
  lagMs: s.described(s.number(), "how long ago it gave its last sign of life"),
  commitMs: s.described(s.number(), "how long its latest commits took"),
  doors: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.described(s.count(), "that are connected to it"),
  slots: s.object({ total: s.number(), free: s.number() }),
  services: s.list(s.object({ pool: s.text(), service: s.text() }), 100_000),
});

type BrokerView = s.ReadBy<typeof brokerView>;

export const brokers = operation({
  name: "brokers",
  role: "read",
  method: "GET",
  path: "/brokers",
  summary: "The brokers that share the store; a broker that has it to itself tells of itself",
  input: nothing,
  output: s.object({ brokers: s.list(brokerView, MOST) }),
  perform: async (core, _given, { broker }) => {
    if (core.membership === undefined) return { brokers: [alone(core, broker)] };
    await core.membership.refresh();
    return { brokers: core.membership.living.map((member) => viewOf(core, member)) };
  },
});

function viewOf(core: Core, member: LivingMember): BrokerView {
  const here = member.epoch === core.state.epoch;
  // What it said with its last heartbeat is out of date here only.
  const fresh = here && core.membership !== undefined ? aboutSelf(core, core.membership.self) : member;
  const { epoch, started, lagMs } = member;
  return { ...fresh, here, epoch, started, lagMs };
}

function alone(core: Core, face: BrokerFace): BrokerView {
  const doors = face.doors();
  const self = { identity: nameOf(doors), version: face.version, fallback: false, doors: () => doors };
  const { epoch } = core.state;
  return { ...aboutSelf(core, self), host: hostname(), here: true, epoch, started: core.started, lagMs: 0 };
}

export const stepBack = operation({
  name: "stepBack",
  role: "admin",
  method: "POST",
  path: "/brokers/{broker}/step-back",
  summary: "Let a fallback that stands in for others close its doors again; its workers go to those others",
  input: s.object({ broker: s.described(s.text(), "its name, or its identity") }),
  output: s.object({ broker: s.text() }),
  perform: async (core, given, { broker }) => {
    await core.membership?.refresh();
    const living = core.membership?.living ?? [];
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
