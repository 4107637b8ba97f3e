import { expect, it } from "vitest";
import { SILENT } from "../../src/base/log.js";
import { Core, type WorkerPort } from "../../src/broker/core.js";
import { DEFAULT_SETTINGS, type WorkerProfile } from "../../src/dispatch/index.js";
import { SessionId, WorkerId } from "../../src/model/ids.js";
import { ModelWorld } from "../store/model-store.js";

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
