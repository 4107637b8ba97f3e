import { expect, it } from "vitest";
import { openTestBroker } from "../support/test-broker.js";

// More recipes than a worker keeps of jobs without tasks.
const JOBS = 540;

it("a worker with many slots runs as many jobs at once", async () => {
  const { client, worker } = await openTestBroker();
  let running = 0;
  let allRun = (): void => {};
  const all = new Promise<void>((resolve) => (allRun = resolve));
  const meet = async (): Promise<string> => {
    if (++running === JOBS) allRun();
    await all;
    return "";
  };
  worker({ slots: JOBS, services: { meet } });
  const submit = () => client.submit({ recipe: { kind: "call", service: "meet" } });
  const jobs = await Promise.all(Array.from({ length: JOBS }, submit));
  expect(new Set(await Promise.all(jobs.map((job) => job.wait())))).toEqual(new Set(["succeeded"]));
});
