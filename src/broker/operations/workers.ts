/** Operations on workers. */
import { figuresOf, type WorkerState } from "../../dispatch/index.js";
import { LaboroError } from "../../model/errors.js";
import { WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { nothing } from "./members.js";
import { operation } from "./operation.js";

const worker = s.described(s.text(), "its id, or its name where only one has it");

export const workerView = s.object({
  id: s.text(),
  name: s.text(),
  protocol: s.text(),
  pool: s.described(s.text(), "empty while it is not known"),
  tags: s.list(s.text(), 1024),
  services: s.list(s.text(), 1024),
  connected: s.described(s.flag(), "false while it is away and its tasks are kept for it"),
  draining: s.flag(),
  standing: s.choice("good", "suspended", "banned"),
  figures: s.described(
    s.object({
      results: s.count(),
      succeeded: s.count(),
      recent: s.described(s.text(), "the last ten, the latest last: + or -"),
    }),
    "what workers of this name have done, on which their standing rests",
  ),
  address: s.optional(s.text()),
  total: s.record(s.number()),
  free: s.record(s.number()),
  tasks: s.described(s.count(), "how many it has, running or next"),
  stock: s.described(s.count(), "those of them beyond its free slots"),
  requests: s.count(),
});

export const workers = operation({
  name: "workers",
  role: "read",
  method: "GET",
  path: "/workers",
  summary: "Workers that are connected, or away for a while",
  input: nothing,
  output: s.object({ workers: s.list(workerView, 1_000_000) }),
  perform: (core) => ({ workers: Array.from(core.state.workers.values(), (one) => viewOfWorker(core, one)) }),
});

export const viewOfWorker = (core: Core, one: WorkerState): s.ReadBy<typeof workerView> => ({
  id: one.profile.id,
  name: one.profile.name,
  protocol: one.profile.protocol,
  pool: one.profile.pool,
  tags: one.profile.tags,
  services: one.profile.services,
  connected: one.connected,
  draining: one.draining,
  standing: one.standing,
  figures: figuresIn(core, one.profile.name),
  ...(one.profile.address === undefined ? {} : { address: one.profile.address }),
  total: { ...one.profile.total },
  free: { ...one.free },
  tasks: one.out,
  stock: one.stock,
  requests: one.requests.size,
});

function figuresIn(core: Core, name: string): { results: number; succeeded: number; recent: string } {
  const { results, succeeded, recent } = figuresOf(core.state, name);
  return { results, succeeded, recent };
}

export const forgive = operation({
  name: "forgive",
  role: "admin",
  method: "POST",
  path: "/workers/{name}/forgive",
  summary: "Let a worker begin anew: what it did counts no more, and it gets work again",
  input: s.object({ name: s.described(s.text(), "its name; it need not be connected") }),
  output: s.object({ name: s.text(), known: s.described(s.flag(), "whether anything was known of that name") }),
  perform: async (core, { name }) => ({ name, known: await core.forgive(name) }),
});

const drainOrStop = (name: "drain" | "stop") =>
  operation({
    name,
    role: "admin",
    method: "POST",
    path: `/workers/{worker}/${name}`,
    summary: name === "drain" ? "Give a worker nothing new" : "Let a worker end what it runs, and go",
    input: s.object({ worker }),
    output: s.object({ worker: s.text() }),
    perform: (core, given) => {
      const id = workerNamed(core, given.worker);
      core.workerDrains(id);
      const port = core.portOf(id);
      if (name === "drain") port?.drain();
      else port?.stop();
      return { worker: id };
    },
  });

export const drain = drainOrStop("drain");
export const stop = drainOrStop("stop");

function workerNamed(core: Core, given: string): WorkerId {
  const { workers: known } = core.state;
  if (known.has(WorkerId(given))) return WorkerId(given);
  const named = [...known].filter(([, { profile }]) => profile.name === given).map(([id]) => id);
  const [only] = named;
  if (only === undefined) throw new LaboroError("LABORO_NO_SUCH_WORKER", `no worker ${given} is known here`);
  if (named.length === 1) return only;
  throw new LaboroError("LABORO_BAD_INPUT", `${named.length} workers are called ${given}: ${named.join(", ")}`);
}
