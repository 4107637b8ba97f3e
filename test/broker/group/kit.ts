/** Several real brokers on one store that lives in memory, with workers and clients of each, in this process. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunningBroker, ServerOptions } from "../../../src/broker/options.js";
import { type Client, connect } from "../../../src/entries/client.js";
import { startWorker, type Worker, type WorkerOptions } from "../../../src/entries/worker.js";
import { startBroker } from "../../../src/server.js";
import { ModelWorld } from "../../store/model-store.js";
import { atEnd } from "../../support/at-end.js";
import { until } from "../../support/wait.js";

export { atEnd };

export const PATIENCE_MS = 30_000;

export interface Member {
  readonly broker: RunningBroker;
  readonly client: Client;
  worker(options?: Partial<WorkerOptions>): Worker;
}

export interface TestGroup {
  readonly dir: string;
  readonly world: ModelWorld;
  readonly members: readonly Member[];
  join(options?: Partial<ServerOptions>): Promise<Member>;
}

export async function openGroup(count: number, options: Partial<ServerOptions> = {}): Promise<TestGroup> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-group-"));
  atEnd(async () => rmSync(dir, { recursive: true, force: true }));
  const world = new ModelWorld();
  const members: Member[] = [];
  const group: TestGroup = {
    dir,
    world,
    members,
    join: async (more = {}) => {
      const member = await joinGroup(group, { ...options, ...more });
      members.push(member);
      return member;
    },
  };
  for (let i = 0; i < count; i++) await group.join();
  for (const { broker } of members) await seesAll(broker, count);
  return group;
}

async function joinGroup({ dir, world, members }: TestGroup, options: Partial<ServerOptions>): Promise<Member> {
  const data = join(dir, `broker-${members.length}`);
  const broker = await startBroker({ dir: data, port: 0, store: () => world.store(), leaseMs: 3_000, ...options });
  atEnd(() => broker.stop());
  // As they are now: a broker that is closed has none.
  const { url, token, ca: caFingerprint } = broker;
  const client = await connect({ broker: url, token, caFingerprint });
  atEnd(async () => client.close());
  return {
    broker,
    client,
    worker: (more = {}) => {
      const worker = startWorker({
        broker: url,
        token,
        slots: 2,
        ...(caFingerprint === undefined ? {} : { caFingerprint }),
        ...more,
      });
      atEnd(() => worker.stop({ graceMs: 0 }));
      return worker;
    },
  };
}

/** It knows that there are so many. */
export async function seesAll(broker: RunningBroker, count: number): Promise<void> {
  await until(
    `${count} brokers are seen`,
    async () => {
      await broker.core.membership?.refresh();
      return broker.core.membership?.liveMembers.length === count;
    },
    PATIENCE_MS,
  );
}

export const joined = (worker: Worker): Promise<boolean> => until("the worker joins", () => worker.joined, PATIENCE_MS);
