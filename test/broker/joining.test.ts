import { expect, it } from "vitest";
import { LaboroError } from "../../src/base/errors.js";
import { SILENT } from "../../src/base/log.js";
import { Core, type WorkerPort } from "../../src/broker/core.js";
import { submit } from "../../src/broker/operations/jobs.js";
import type { OperationContext } from "../../src/broker/operations/operation.js";
import { DEFAULT_SETTINGS, type WorkerProfile } from "../../src/dispatch/index.js";
import { JobId, SessionId, WorkerId } from "../../src/model/ids.js";
import { ModelWorld } from "../store/model-store.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";

const PORT: WorkerPort = {
  ...{ assign: () => {}, retract: () => {}, cancel: () => {}, call: () => {}, cancelCall: () => {} },
  ...{ drain: () => {}, stop: () => {}, close: () => {} },
};

const PROFILE: WorkerProfile = {
  ...{ id: WorkerId("one"), session: SessionId("1"), name: "one", protocol: "laboro", pool: "default", tags: [] },
  ...{ services: [], total: { slots: 1 }, reserveRequests: 0, resumable: true, canPrefetch: false },
};

it("a worker whose connection ends while it joins is not taken for connected", async () => {
  const store = new ModelWorld({ shared: true }).store();
  const core = await Core.open(store, DEFAULT_SETTINGS, SILENT, (cause) => {
    throw cause;
  });
  const port = { ...PORT };
  const joining = core.workerJoins(PROFILE, [], port);
  core.workerDisconnected(PROFILE.id, port, false);
  await expect(joining).rejects.toMatchObject({ code: "LABORO_BROKER_GONE" });
  expect(core.portOf(PROFILE.id)).toBeUndefined();
  expect(core.state.workers.get(PROFILE.id)?.connected ?? false).toBe(false);
  // The same session may join later.
  await core.workerJoins(PROFILE, [], port);
  expect(core.portOf(PROFILE.id)).toBe(port);
  await core.stop();
});

const context = { role: "admin", signal: new AbortController().signal } as unknown as OperationContext;

it("tasks that cannot be sent to their worker fail with the reason, and the broker goes on", async () => {
  const store = new ModelWorld({ shared: false }).store();
  const core = await Core.open(store, DEFAULT_SETTINGS, SILENT, (cause) => {
    throw cause;
  });
  const refuse = (): never => {
    throw new LaboroError("LABORO_BODY_TOO_LARGE", "TASKS cannot be sent");
  };
  await core.workerJoins(PROFILE, [], { ...PORT, assign: refuse });
  const answer = await submit.perform(core, submit.input.read({ recipe: TRUE, count: 3 }, ""), context);
  const job = JobId(answer.job);
  await until("the job has ended", async () => (await store.job(job))?.ended);
  const { results } = await store.results(job, { from: 0, limit: 10 });
  expect(results.map(({ error }) => error)).toEqual(Array(3).fill("LABORO_BODY_TOO_LARGE: TASKS cannot be sent"));
  await core.stop();
});

it("tasks that were claimed for a worker and could not be sent, because it was lost meanwhile, go to others", async () => {
  const store = new ModelWorld({ shared: false }).store();
  const core = await Core.open(store, DEFAULT_SETTINGS, SILENT, (cause) => {
    throw cause;
  });
  const lost = { ...PORT, assign: () => expect.unreachable() };
  const commit = store.commit.bind(store);
  store.commit = async (writes, now) => {
    const results = await commit(writes, now);
    if (writes.some(({ op }) => op === "claim")) core.workerDisconnected(PROFILE.id, lost, false);
    return results;
  };
  // Longer than the test.
  await core.workerJoins({ ...PROFILE, graceMs: 3_600_000 }, [], lost);
  await submit.perform(core, submit.input.read({ recipe: TRUE }, ""), context);
  let sent = 0;
  const two = { ...PROFILE, id: WorkerId("two"), session: SessionId("2"), name: "two" };
  await core.workerJoins(two, [], { ...PORT, assign: () => sent++ });
  await until("the other worker has the task", () => sent === 1);
  await core.stop();
});
