import { describe, expect, it } from "vitest";
import { startWorker } from "../../src/worker/index.js";
import { atEnd } from "../support/at-end.js";
import { sites } from "../support/site.js";
import { laboro, openCliBroker } from "./support/cli.js";

const newSite = sites();

describe("laboro request", () => {
  it("prints the answer of a service, byte for byte", async () => {
    const setup = await openCliBroker();
    setup.worker().handle("upper", async (body) => Buffer.from(Buffer.from(body).toString().toUpperCase()));
    expect(await setup.laboro(["request", "upper", "hello"])).toEqual({ code: 0, stdout: "HELLO", stderr: "" });
    expect((await setup.laboro(["request", "upper", "-"], { process: true, input: "from\nstdin\n" })).stdout).toBe(
      "FROM\nSTDIN\n",
    );
    expect((await setup.laboro(["request", "upper"])).stdout).toBe("");
  });

  it("that fails is exit code 1, with the words of the service", async () => {
    const setup = await openCliBroker();
    setup.worker().handle("broken", async () => {
      throw new Error("out of paper");
    });
    expect(await setup.laboro(["request", "broken", "x"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: service broken: out of paper (LABORO_SERVICE_FAILED)
      ",
        "stdout": "",
      }
    `);
  });

  it("whose broker goes away under it is exit code 3, and says how to find out what became of it", async () => {
    const site = newSite();
    await site.startBroker();
    const worker = startWorker({ broker: site.url, token: site.token });
    atEnd(() => worker.stop({ graceMs: 0 }));
    const asked = new Promise<void>((resolve) => {
      worker.handle("slow", () => {
        resolve();
        return new Promise(() => {});
      });
    });
    const said = laboro(["request", "slow"], { env: { LABORO_DATA: site.data } });
    await asked;
    await site.broker.end("SIGKILL");
    expect(await said).toMatchObject({
      code: 3,
      stdout: "",
      stderr: expect.stringMatching(/\(LABORO_BROKER_GONE\)\n {2}the command may or may not have taken effect: check/),
    });
  });

  it("that nobody answers ends at its timeout", async () => {
    const setup = await openCliBroker();
    expect(await setup.laboro(["request", "nobody", "x", "--timeout", "200ms"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: service nobody: no worker offered it before the deadline (LABORO_DEADLINE)
        laboro services and laboro workers show who could answer
      ",
        "stdout": "",
      }
    `);
  });

  it("that no worker offers says so while it waits, with the name that may be meant", async () => {
    const setup = await openCliBroker();
    const worker = setup.worker();
    worker.handle("upper", () => "HELLO");
    expect(await setup.laboro(["request", "uper", "x", "--timeout", "1500ms"])).toEqual({
      code: 1,
      stdout: "",
      stderr: `laboro: no worker offers service uper, waiting for one; did you mean upper?
laboro: service uper: no worker offered it before the deadline (LABORO_DEADLINE)
  laboro services and laboro workers show who could answer
`,
    });
  });

  it("that a busy worker offers waits in silence", async () => {
    const setup = await openCliBroker();
    setup.worker().handle("slow", () => new Promise((resolve) => setTimeout(resolve, 1300, "done")));
    expect(await setup.laboro(["request", "slow"])).toEqual({ code: 0, stdout: "done", stderr: "" });
  });
});
