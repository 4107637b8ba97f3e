/**
 * What people see of a worker, and how long it may be away. Stored with the first task that it gets: a broker that has been started again
 * knows the workers that have tasks and are still away. Workers that cannot resume are not away, so they have no record.
 */
import { WorkerId } from "../model/ids.js";
import type { KeyValue } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import type { State, WorkerProfile, WorkerState } from "./state.js";

export const WORKER_BUCKET = "worker";

export function recordOf(profile: WorkerProfile): string | undefined {
  if (!profile.resumable) return undefined;
  const { name, protocol, pool, tags, services, total, reserveRequests, graceMs } = profile;
  return JSON.stringify({ name, protocol, pool, tags, services, total, reserveRequests, graceMs });
}

/** To be called before the worker gets a task. */
export function storeRecord(out: Decisions, worker: WorkerState): void {
  const { record, storedRecord, profile } = worker;
  if (record === undefined || record === storedRecord) return;
  worker.storedRecord = record;
  out.writes.push({ op: "put", bucket: WORKER_BUCKET, key: profile.id, value: record });
}

export function deleteRecord(out: Decisions, { storedRecord, profile }: WorkerState): void {
  if (storedRecord !== undefined) out.writes.push({ op: "put", bucket: WORKER_BUCKET, key: profile.id, value: null });
}

/** To be called before claims are restored. */
export function loadRecords(state: State, stored: readonly KeyValue[]): void {
  for (const { key, value } of stored) state.workerRecords.set(WorkerId(key), value);
}

/** The profile of a worker that has tasks and has not come back yet. */
export function absentProfile(state: State, id: WorkerId): WorkerProfile {
  const record = state.workerRecords.get(id);
  return {
    id,
    session: "" as WorkerProfile["session"],
    name: id,
    protocol: "unknown",
    pool: "",
    tags: [],
    services: [],
    total: { slots: 0 },
    reserveRequests: 0,
    resumable: true,
    canPrefetch: false,
    ...(record === undefined ? {} : (JSON.parse(record) as Partial<WorkerProfile>)),
  };
}
