/** Workers made by a generator: they sit where a protocol's session sits, and do as they are told here. */
import type { WorkerPort } from "../../src/broker/core.js";
import type { WorkerProfile } from "../../src/dispatch/index.js";
import { SessionId, WorkerId } from "../../src/model/ids.js";
import type { Scene } from "./scene.js";

export const profile = (name: string, over: Partial<WorkerProfile> = {}): WorkerProfile => ({
  id: WorkerId(name),
  session: SessionId(name),
  name,
  protocol: "laboro",
  pool: "crowd",
  tags: [],
  services: [],
  total: { slots: 4 },
  reserveRequests: 0,
  resumable: false,
  canPrefetch: false,
  address: "127.0.0.1",
  ...over,
});

/** Takes everything and does nothing. */
export const IDLE: WorkerPort = {
  assign: () => {},
  retract: () => {},
  cancel: () => {},
  call: () => {},
  cancelCall: () => {},
  drain: () => {},
  stop: () => {},
  close: () => {},
};

export interface Doing {
  /** Of so many tasks one fails. */
  readonly failEvery: number;
  /** Tasks from this one on are begun, and go on for ever. */
  readonly until?: number;
}

/** Ends whatever it is given at once, as far as it is told to. */
export const quick = ({ broker }: Scene, name: string, { failEvery, until = Infinity }: Doing): WorkerPort => ({
  ...IDLE,
  assign: (job, { first, last, attempt }) => {
    const id = WorkerId(name);
    const all = Array.from({ length: last - first + 1 }, (_, at) => ({
      job: job.id,
      index: first + at,
      attempt,
      code: (first + at) % failEvery === failEvery - 1 ? 1 : 0,
      started: 1,
      ended: 2,
      outputBytes: 0,
    }));
    const done = all.slice(0, Math.max(0, until - first));
    setImmediate(() => {
      broker.core.workerStarted(id, all);
      if (done.length > 0) broker.core.workerDone(id, done, () => {});
    });
  },
});

export const joins = ({ broker }: Scene, worker: WorkerProfile, port: WorkerPort): Promise<unknown> =>
  broker.core.workerJoins(worker, [], port);
