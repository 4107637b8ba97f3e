/** Requests between the sessions of clients and workers, at a broker without listeners. */
import { expect, it } from "vitest";
import { now } from "../../src/base/clock.js";
import type { WorkerPort } from "../../src/broker/core-view.js";
import { type RequestId, SessionId, WorkerId } from "../../src/model/ids.js";
import { openTestBroker } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

async function scene() {
  const { core } = (await openTestBroker()).broker;
  const calls: { worker: string; id: RequestId; timeoutMs: number }[] = [];
  const replies: string[] = [];
  const nothing = (): void => {};
  const join = async (worker: string): Promise<WorkerPort> => {
    const port: WorkerPort = {
      ...{ assign: nothing, retract: nothing, cancel: nothing, cancelCall: nothing, drain: nothing, stop: nothing },
      call: (id, _service, _body, timeoutMs) => void calls.push({ worker, id, timeoutMs }),
      close: nothing,
    };
    const profile = { id: WorkerId(worker), session: SessionId(worker), name: worker, protocol: "test", tags: [] };
    const offer = { pool: "default", services: ["echo"], total: { slots: 1 }, reserveRequests: 0 };
    await core.workerJoins({ ...profile, ...offer, resumable: false, canPrefetch: false }, [], port);
    return port;
  };
  const request = { service: "echo", pool: "default", body: new Uint8Array(0), timeoutMs: 60_000 };
  const ask = (retry: boolean) => core.requests.add({ ...request, retry }, (body) => void replies.push(text(body)));
  return { core, calls, replies, join, ask };
}

it("a worker is given the time that is left of a request that has waited", async () => {
  const { calls, join, ask } = await scene();
  ask(false);
  const asked = now();
  await until("time has passed", () => now() > asked + 2);
  await join("a");
  expect(calls).toHaveLength(1);
  expect(calls[0]?.timeoutMs).toBeLessThanOrEqual(60_000 - 2);
});

it("the late reply of a worker that was lost leaves the request to the worker that has it now", async () => {
  const { core, calls, replies, join, ask } = await scene();
  const port = await join("a");
  const id = ask(true);
  await join("b");
  core.workerDisconnected(WorkerId("a"), port, false);
  expect(calls.map(({ worker }) => worker)).toEqual(["a", "b"]);
  core.requests.replied(WorkerId("a"), id, Buffer.from("late"), undefined);
  core.requests.replied(WorkerId("b"), id, Buffer.from("answer"), undefined);
  expect(replies).toEqual(["answer"]);
});
