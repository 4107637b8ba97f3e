import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { answerOne, dealer, numbering, openScale0, req, startedWorker } from "./kit.js";

describe("work", () => {
  it("goes from a DEALER client to a worker and back, its frames untouched", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    const binary = Buffer.from([0, 255, 1, 128]);
    await client.sayFrames("WORKREQUEST", '{"service":"echo","message_id":"m1","mine":{"x":1}}', "one", "", binary);
    const [command = "", json = "", ...body] = await worker.hearFrames();
    const parameters = JSON.parse(json.toString()) as Record<string, unknown>;
    expect(command.toString()).toBe("WORKREQUEST");
    expect(parameters).toEqual({
      service: "echo",
      message_id: "m1",
      mine: { x: 1 },
      time: expect.any(Number),
      config_version: 0,
      work_request_identifier: expect.stringMatching(/^c1\/m1\//),
      work_request_indentifier: parameters.work_request_identifier,
    });
    expect(body.map((frame) => Buffer.from(frame))).toEqual([Buffer.from("one"), Buffer.alloc(0), binary]);
    const { work_request_identifier } = parameters;
    await worker.sayFrames("WORKREPLY", JSON.stringify({ work_request_identifier }), binary, "two");
    const [replied, named, ...answer] = await client.hearFrames();
    expect([replied?.toString(), JSON.parse(named?.toString() ?? "")]).toEqual(["WORKREPLY", { message_id: "m1" }]);
    expect(answer).toEqual([binary, Buffer.from("two")]);
  });

  it("goes to a REQ client with its delimiter, and a message id of any kind or none", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = req(setup.clients);
    for (const message_id of [undefined, 7, "x"]) {
      await client.say("WORKREQUEST", { service: "echo", message_id }, "hello");
      await answerOne(worker);
      expect(await client.hear()).toEqual(["WORKREPLY", message_id === undefined ? {} : { message_id }, "hello"]);
    }
    expect((await client.ask("PING", { time: 1 + Date.now() }))[0]).toBe("PONG");
  });

  it("goes back under a message id of more digits than JavaScript keeps, in any of its names", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    for (const [command, id] of [
      ["WORKREQUEST", '"message_id":18446744073709551615'],
      ["TASK", '"id":9007199254740993'],
    ] as const) {
      await client.sayFrames(command, `{"service":"echo",${id}}`, "hello");
      const [, json = ""] = await worker.hearFrames();
      if (command === "WORKREQUEST") expect(json.toString()).toContain(id);
      const { work_request_identifier } = JSON.parse(json.toString()) as Record<string, unknown>;
      expect(work_request_identifier).toContain(id.split(":")[1]);
      await worker.say("WORKREPLY", { work_request_identifier }, "hello");
      expect((await client.hearFrames())[1]?.toString()).toBe(`{${id}}`);
      await worker.ask("PING", {});
    }
    await client.sayFrames("WORKREQUEST", `{"service":"echo","message_id":${"9".repeat(2_000)}}`);
    expect((await client.hear())[1]).toMatchObject({ code: 400 });
  });

  it("goes back to a REQ client that numbers what it says under the same number", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = numbering(setup.clients);
    for (const body of ["one", "two"]) {
      await client.say("WORKREQUEST", { service: "echo", message_id: body }, body);
      await answerOne(worker);
      expect(await client.hear()).toEqual(["WORKREPLY", { message_id: body }, body]);
    }
    expect((await client.ask("PING", {}))[0]).toBe("PONG");
    expect((await client.ask("DANCE", {}))[1]).toMatchObject({ code: 501 });
    // It gives up on one answer, and gets the next one.
    await client.say("WORKREQUEST", { service: "echo", message_id: "slow" }, "slow");
    expect((await client.ask("PING", {}))[0]).toBe("PONG");
    const number = Buffer.from([0, 1, 2, 255]);
    const plain = dealer(setup.clients, "c1");
    await plain.sayFrames(number, "", "PING", "{}");
    expect((await plain.hearFrames()).slice(0, 3)).toEqual([number, Buffer.alloc(0), Buffer.from("PONG")]);
    // Four letters alone are no number.
    await plain.sayFrames("TASK", "", "x");
    expect((await plain.hear())[1]).toMatchObject({ code: 400 });
  });

  it("is called TASK by the later notes, and answered in the word that was used", async () => {
    const setup = await openScale0();
    const client = dealer(setup.clients, "c1");
    const worker = await startedWorker(setup, "w1", { more: { work: "TASK" } });
    for (const [asked, replied] of [
      ["WORKREQUEST", "WORKREPLY"],
      ["TASK", "TASKREPLY"],
    ] as const) {
      await client.say(asked, { service: "echo", message_id: 1 }, "x");
      const [command, { work_request_identifier: work_request_indentifier }] = await worker.hearOf("TASK");
      expect(command).toBe("TASK");
      await worker.say("TASKREPLY", { work_request_indentifier }, "y");
      await worker.say("PING", {});
      expect(await client.hear()).toEqual([replied, { message_id: 1 }, "y"]);
    }
    worker.close();
    const other = await startedWorker(setup, "w2", { services: ["other"] });
    await client.say("TASK", { service: "other", message_id: 2 });
    expect((await other.hear())[0]).toBe("TASK");
  });

  it("has an id and a body among its parameters, as the later notes have them", async () => {
    const setup = await openScale0();
    const client = dealer(setup.clients, "c1");
    const worker = await startedWorker(setup, "w1", { more: { work: "TASK" } });
    await client.say("TASK", { service: "echo", id: "mine", body: "ä" });
    const [command, { id, work_request_identifier, body, time }, frame] = await worker.hear();
    expect([command, body, frame]).toEqual(["TASK", "ä", "ä"]);
    expect([id, work_request_identifier]).toEqual(Array(2).fill(expect.stringMatching(/^c1\/mine\//)));
    await worker.say("TASKREPLY", { id, time, config_version: 0, body: "ö" });
    expect(await client.hear()).toEqual(["TASKREPLY", { id: "mine", body: "ö" }, "ö"]);
    await worker.say("PING", {});
    // Each end as it likes.
    await client.say("WORKREQUEST", { service: "echo", message_id: 2 }, "x");
    const [, second] = await worker.hearOf("TASK");
    await worker.say("TASKREPLY", { id: second.id, body: { y: 1 } });
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 2 }, '{"y":1}']);
    expect(await client.ask("TASK", { service: 7, id: 3 })).toEqual([
      "DISCONNECTERROR",
      { code: 400, message: expect.any(String), id: 3 },
    ]);
  });

  it("of several services of one worker comes with the service's name", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1", { services: ["a", "b"] });
    const client = dealer(setup.clients, "c1");
    for (const service of ["b", "a"]) {
      await client.say("WORKREQUEST", { service, message_id: service });
      expect((await answerOne(worker, service))[1]).toMatchObject({ service });
      expect(await client.hear()).toEqual(["WORKREPLY", { message_id: service }, service]);
    }
  });

  it("of a service that a worker offers from its next CONNECT on waits for that, and none of the old comes any more", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1", { services: ["old"] });
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "new", message_id: 1 }, "a");
    await client.say("WORKREQUEST", { service: "old", message_id: 2 }, "b");
    const [, { work_request_identifier }, body] = await worker.hear();
    expect(body).toBe("b");
    // What it has it may still answer.
    expect((await worker.ask("CONNECT", { services: "new,newer" }))[0]).toBe("CONFIG");
    await worker.say("WORKREPLY", { work_request_identifier }, "B");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 2 }, "B"]);
    await client.say("WORKREQUEST", { service: "old", message_id: 3, timeout: 300 }, "c");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect((await worker.hear())[2]).toBe("a");
    expect((await client.hear())[1]).toMatchObject({ code: 504, message_id: 3 });
    expect(await setup.client.workers()).toMatchObject([{ services: ["new", "newer"] }]);
  });

  it("goes to the worker that was used longest ago, and only to one that has PINGed since", async () => {
    const setup = await openScale0();
    const workers = [
      await startedWorker(setup, "w1"),
      await startedWorker(setup, "w2"),
      await startedWorker(setup, "w3"),
    ];
    const client = dealer(setup.clients, "c1");
    for (let i = 0; i < 3; i++) await client.say("WORKREQUEST", { service: "echo", message_id: i }, String(i));
    for (const [i, worker] of workers.entries()) {
      const [, { work_request_identifier }, body] = await worker.hear();
      expect(body).toBe(String(i));
      await worker.say("WORKREPLY", { work_request_identifier }, "done");
      await client.hear();
    }
    // All have replied, none has PINGed: the next one waits.
    await client.say("WORKREQUEST", { service: "echo", message_id: 9 }, "9");
    await until("it waits", async () => (await setup.client.ask("status", {})).requests.waiting === 1);
    await workers[1]?.say("PING", {});
    const [, , body] = (await workers[1]?.hearOf("WORKREQUEST")) ?? [];
    expect(body).toBe("9");
  });

  it("is given to a worker with several slots one at each PING, and no more than it has slots", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1", { slots: 2 });
    const client = dealer(setup.clients, "c1");
    for (let i = 0; i < 4; i++) await client.say("WORKREQUEST", { service: "echo", message_id: i }, String(i));
    const first = await worker.hear();
    expect(first[2]).toBe("0");
    await until("three wait", async () => (await setup.client.ask("status", {})).requests.waiting === 3);
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect((await worker.hear())[2]).toBe("1");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect((await setup.client.ask("status", {})).requests).toEqual({ waiting: 2, running: 2 });
    await worker.say("WORKREPLY", { work_request_identifier: first[1].work_request_identifier }, "done");
    await client.hear();
    await worker.say("PING", {});
    expect((await worker.hearOf("WORKREQUEST"))[2]).toBe("2");
  });

  it("that nobody waits for is dropped quietly: unknown identifiers, those of others, and the second reply", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const other = await startedWorker(setup, "w2", { services: ["other"] });
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 });
    const [, { work_request_identifier }] = await worker.hear();
    for (const identifier of ["c1/1/9999", "", null, 7, work_request_identifier]) {
      await other.say("WORKREPLY", { work_request_identifier: identifier }, "false");
    }
    await other.say("WORKREPLY", {});
    expect((await other.ask("PING", {}))[0]).toBe("PONG");
    await worker.say("WORKREPLY", { work_request_identifier }, "true");
    await worker.say("WORKREPLY", { work_request_identifier }, "twice");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "true"]);
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect(await client.silent(100)).toBe(true);
  });

  it("flows between Scale0 and laboro's own workers and clients", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1", { services: ["old"] });
    const asked = setup.client.request("old", Buffer.from("hello"));
    const [, parameters, body] = await worker.hear();
    expect([parameters.service, body]).toEqual(["old", "hello"]);
    await worker.say("WORKREPLY", { work_request_identifier: parameters.work_request_identifier }, "wor", "ld");
    expect((await asked).toString()).toBe("world");
    const { startWorker } = await import("../../../src/entries/worker.js");
    const own = startWorker({
      broker: setup.broker.url,
      token: setup.broker.token,
      services: {
        new: (bytes) => Buffer.from(bytes).reverse(),
        bad: () => {
          throw new Error("no luck");
        },
      },
    });
    try {
      const client = dealer(setup.clients, "c1");
      expect(await client.ask("WORKREQUEST", { service: "new", message_id: 1 }, "ab", "cd")).toEqual([
        "WORKREPLY",
        { message_id: 1 },
        "dcba",
      ]);
      expect(await client.ask("WORKREQUEST", { service: "bad", message_id: 2 })).toEqual([
        "WORKREPLY",
        { message_id: 2, error: "LABORO_SERVICE_FAILED" },
        "no luck",
      ]);
    } finally {
      await own.stop({ graceMs: 0 });
    }
  });
});

describe("a durable batch of calls", () => {
  it("is done by Scale0 workers too, task by task", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const job = await setup.client.submit({ recipe: { kind: "call", service: "echo" }, entries: ["a", "b", "c"] });
    await answerOne(worker);
    const [, second] = await worker.hearOf("WORKREQUEST");
    await worker.say("WORKREPLY", { work_request_identifier: second.work_request_identifier, error: "E" }, "no luck");
    await worker.say("PING", {});
    await answerOne(worker, "C!");
    await job.wait();
    const results = [];
    for await (const { state, error } of job.results()) results.push([state, error]);
    expect(results).toEqual([
      ["succeeded", undefined],
      ["failed", "no luck"],
      ["succeeded", undefined],
    ]);
    const { pieces } = await setup.client.ask("output", { job: job.id, index: 2 });
    expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["C!"]);
  });

  it("goes to another worker where one is lost, and no longer where it was cancelled", async () => {
    const setup = await openScale0();
    const first = await startedWorker(setup, "w1");
    const job = await setup.client.submit({ recipe: { kind: "call", service: "echo" }, entries: ["a"] });
    await first.hearOf("WORKREQUEST");
    await first.sayFrames("NONSENSE", "{}");
    const second = await startedWorker(setup, "w2");
    const [, { work_request_identifier }] = await second.hearOf("WORKREQUEST");
    await job.cancel();
    await job.wait();
    expect((await setup.client.ask("job", { job: job.id })).state).toBe("cancelled");
    await second.say("WORKREPLY", { work_request_identifier }, "late");
    await second.say("PING", {});
    const asked = setup.client.request("echo", Buffer.from("x"));
    await answerOne(second);
    expect((await asked).toString()).toBe("x");
  });
});
