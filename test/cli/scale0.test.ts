import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { newCurveKeyPair } from "../../src/base/curve-key.js";
import { openScale0 } from "../protocols/scale0/kit.js";
import { freePort } from "../support/free-port.js";
import { LABORO } from "../support/launched.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";
import { laboro } from "./support/cli.js";

const newSite = sites();

interface Served {
  readonly clients: string;
  readonly workers: string;
  readonly data: string;
  readonly kill: () => Promise<void>;
}

async function serve(site: Site, name: string, ...more: string[]): Promise<Served> {
  const [client, worker, publish] = [await freePort(), await freePort(), await freePort()];
  const data = site.path(name);
  const protocol = `scale0=127.0.0.1:${client},${worker},${publish}`;
  const args = [LABORO, "serve", "--data", data, "--listen", "127.0.0.1:0", "--protocol", protocol, ...more];
  const broker = site.launch(name, args);
  await broker.says("listening on", 60_000);
  return {
    clients: `tcp://127.0.0.1:${client}`,
    workers: `tcp://127.0.0.1:${worker}`,
    data,
    kill: () => broker.end("SIGKILL"),
  };
}

const scale0 = (...args: string[]) =>
  laboro(["scale0", ...args], { input: "from stdin", env: { HOME: "/nonexistent" } });

/** A worker process with its files in the site's folder. */
const launchWorker = (site: Site, ...args: string[]) =>
  site.launch("worker", [LABORO, "scale0", "worker", "--dir", site.path("requests"), ...args]);

describe("laboro scale0", () => {
  it("offers programs as services, and asks them", async () => {
    const site = newSite();
    const { clients, workers } = await openScale0();
    const worker = launchWorker(
      site,
      ...["--broker", workers, "--name", "w1", "--slots", "2"],
      ...["--service", "upper=tr a-z A-Z", "--service", "fail=echo no luck >&2; exit 3"],
    );
    await worker.says(`worker w1 is registered with ${workers}`, 60_000);
    const broker = ["--broker", clients];
    expect(await scale0("request", "upper", "hello", ...broker)).toEqual({ code: 0, stdout: "HELLO", stderr: "" });
    expect((await scale0("request", "upper", "-", ...broker)).stdout).toBe("FROM STDIN");
    expect((await scale0("request", "upper", ...broker)).stdout).toBe("");
    const failed = await scale0("request", "fail", ...broker);
    expect([failed.code, failed.stderr]).toEqual([
      1,
      expect.stringMatching(/service fail: .*no luck.*LABORO_SERVICE_FAILED/s),
    ]);
    const none = await scale0("request", "none", "x", "--timeout", "100ms", ...broker);
    expect([none.code, none.stderr]).toEqual([1, expect.stringMatching(/504.*no worker offered it.*LABORO_DEADLINE/s)]);
    worker.signal("SIGTERM");
    await worker.says("worker w1 has stopped");
    await worker.ended();
    expect(worker.exitCode).toBe(0);
  });

  it("ends with 3 and says why where no broker answers at the start, unless told to keep trying", async () => {
    const site = newSite();
    const port = await freePort();
    const url = `tcp://127.0.0.1:${port}`;
    const nobody = ["--broker", url, "--connect-timeout", "200ms"];
    const said = await scale0("worker", "--dir", site.path("w"), ...nobody, "--service", "a=cat");
    expect([said.code, said.stderr]).toEqual([3, expect.stringContaining(`no broker answers at ${url}`)]);
    expect(said.stderr).toContain("--keep-trying");
    const asked = await scale0("request", "a", "x", ...nobody);
    expect([asked.code, asked.stderr]).toEqual([3, expect.stringContaining("laboro serve --protocol scale0")]);
    const worker = launchWorker(site, ...nobody, "--service", "a=cat", "--keep-trying");
    await worker.says("no broker, retrying", 60_000);
    expect(worker.over).toBe(false);
    worker.signal("SIGINT");
    await worker.ended();
    expect(worker.exitCode).toBe(0);
  });

  it("refuses what makes no sense", async () => {
    const said = [
      await scale0("worker"),
      await scale0("worker", "--service", "noname"),
      await scale0("worker", "--service", "a=cat", "--slots", "0"),
      await scale0("worker", "--service", "a=cat", "--dir", newSite().path("w"), "--broker", "http://x"),
      await scale0("request"),
    ];
    expect(said.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2]);
  });

  it("falls back on another broker when its own is killed, and finds it by what it remembers at the next start", async () => {
    const site = newSite();
    const east = await serve(site, "east");
    const west = await openScale0();
    const brokers = JSON.stringify([{ identity: "west", worker_uri: west.workers, client_uri: west.clients }]);
    const set = await laboro(["config", "set", `brokers=${brokers}`, "heartbeat_interval=100", "--data", east.data]);
    expect(set.stdout).toBe("config version 1\n");
    const memory = site.path("remembered.json");
    const start = (broker: string[]) =>
      launchWorker(
        site,
        ...broker,
        ...["--name", "w1", "--service", "upper=tr a-z A-Z", "--config-cache", memory, "--connect-timeout", "300ms"],
      );
    const worker = start(["--broker", east.workers]);
    await worker.says(`registered with ${east.workers}`, 60_000);
    await until("it is remembered", () => existsSync(memory));
    expect((await scale0("request", "upper", "one", "--broker", east.clients)).stdout).toBe("ONE");
    await east.kill();
    await worker.says(`registered with ${west.workers}`, 60_000);
    const other = ["--other", west.clients, "--connect-timeout", "300ms"];
    expect((await scale0("request", "upper", "two", "--broker", east.clients, ...other)).stdout).toBe("TWO");
    await worker.end("SIGKILL");
    // Its own broker is down; the remembered group is asked.
    const again = start(["--broker", east.workers]);
    await again.says(`registered with ${west.workers}`, 60_000);
    expect((await scale0("request", "upper", "three", "--broker", west.clients)).stdout).toBe("THREE");
  }, 240_000);

  it("comes in with its keys where the listener asks for them, and not without", async () => {
    const site = newSite();
    const data = site.path("curve");
    await laboro(["keys", "new", "node17", "--data", data], { process: true });
    const { clients, workers } = await serve(site, "curve", "--curve");
    const file = `${data}/keys/node17.json`;
    const worker = launchWorker(site, "--broker", workers, "--service", "upper=tr a-z A-Z", "--curve", file);
    await worker.says("is registered with", 60_000);
    expect((await scale0("request", "upper", "hello", "--broker", clients, "--curve", file)).stdout).toBe("HELLO");
    const without = await scale0("request", "upper", "hello", "--broker", clients, "--connect-timeout", "500ms");
    expect(without.code).toBe(3);
    expect(without.stderr).toContain('the security mechanism "CURVE", expected NULL; laboro keys list, at the broker');
    const denied = site.path("denied.json");
    const { publicKey, secretKey } = newCurveKeyPair();
    const { serverKey } = JSON.parse(readFileSync(file, "utf8"));
    const saidWith = async (keys: object): Promise<string> => {
      writeFileSync(denied, JSON.stringify(keys));
      const place = ["--broker", clients, "--connect-timeout", "500ms", "--curve", denied];
      return (await scale0("request", "upper", "hello", ...place)).stderr;
    };
    expect(await saidWith({ publicKey, secretKey, serverKey })).toContain("this CURVE key is not known there (400)");
    expect(await saidWith({ publicKey, secretKey, serverKey: publicKey })).toContain("in the handshake of CURVE");
    expect(await saidWith({ publicKey, secretKey })).toContain("laboro keys new writes such files");
  });
});
