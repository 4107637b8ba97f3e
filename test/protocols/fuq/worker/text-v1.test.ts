/** The text of version 1, rule by rule, with a literal server at our client. docs/reference/protocols/fuq.md lists these tests. */
import { existsSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { Yard } from "./kit.js";
import { ERROR, JOB, OK, STOP, task, UPDATE } from "./literal-foreman.js";
import { LiteralServer } from "./literal-server.js";

async function opened(slots = 2) {
  const yard = new Yard();
  const server = await new LiteralServer().start();
  const worker = yard.worker(server.place, { slots });
  const go = yard.path("go");
  const command = yard.script("wait.sh", `while [ ! -e ${go} ]; do sleep 0.02; done; touch ${yard.path("ended")}.$1`);
  return {
    ...{ yard, server, worker },
    go: () => writeFileSync(go, ""),
    ended: (number: number) => until("it has ended", () => existsSync(yard.path(`ended.${number}`))),
    job: (number: number) => server.say(JOB, 0, task(number, { dir: yard.dir, command })),
  };
}

it("v1 client greeting 1-4: OK is awaited, OK(nproc) sent, OK(nproc) awaited", async () => {
  const { server } = await opened(3);
  expect(await server.welcome(1)).toMatchObject({ type: OK, arg0: 3 });
});

it("v1 client_loop 1: JOB is run without a reply, or ERROR(cannot_run_job) where no processor is free", async () => {
  const { server, job, go } = await opened(1);
  await server.welcome(1);
  job(1);
  job(2);
  expect(await server.next()).toMatchObject({ type: ERROR, arg0: 5 });
  go();
  expect(await server.next()).toMatchObject({ type: UPDATE, data: { Task: 1 } });
});

it("v1 client_loop 1: STOP(n) lowers max_nproc, STOP(immed) is an immediate exit", async () => {
  const { server, job, worker } = await opened(2);
  await server.welcome(1);
  server.say(STOP, 1);
  job(1);
  job(2);
  expect(await server.next()).toMatchObject({ type: ERROR, arg0: 5 });
  server.say(STOP, 0xffff_ffff);
  await until("it has ended", () => worker.outcome === "stopped");
});

it("v1 client_loop 2: UPDATE is sent, its OK awaited, then the loop goes on, or ends when no processor is left", async () => {
  const { server, job, go, ended, worker } = await opened(2);
  await server.welcome(1);
  job(1);
  job(2);
  go();
  const first = await server.next();
  expect(first.type).toBe(UPDATE);
  for (const number of [1, 2]) await ended(number);
  // Nothing is sent between the UPDATE and this refusal.
  job(3);
  expect((await server.next()).type).toBe(ERROR);
  server.say(STOP, 0);
  server.say(OK, 1);
  // Beside a running task it does not end.
  expect((await server.next()).type).toBe(UPDATE);
  expect(worker.outcome).toBeUndefined();
  server.say(OK, 0);
  await until("it has ended", () => worker.outcome === "stopped");
});
