/** The consoles of the round-robin programs, each a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { E, greeted, REGISTER, TRACKEXEC, V } from "../protocols/round-robin/place.js";
import { freePort } from "../support/free-port.js";
import { LABORO, REPOSITORY } from "../support/launched.js";
import { until } from "../support/wait.js";
import { laboro } from "./support/cli.js";
import { Console, freeUrl } from "./support/rr-console.js";

const DEADLINE = 60_000;
const started: ChildProcess[] = [];
const consoles: Console[] = [];
const folders: string[] = [];

afterEach(() => {
  for (const child of [...started.splice(0), ...consoles.splice(0)]) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "laboro-rr-test-"));
  folders.push(made);
  return made;
}

/** A console that ends with its test. */
function console(args: readonly string[], temporary = folder()): Console {
  const one = new Console(args, temporary);
  consoles.push(one);
  return one;
}

describe("workers that end in the middle of a bulk test", () => {
  it("fail none of its messages", { timeout: 120_000 }, async () => {
    const at = await freeUrl();
    const server = console(["server", "-d", "0", "--bind", at]);
    await server.says("> ");
    const worker = console(["worker", "-d", "1", "--connect", at]);
    worker.type("register bulk");
    await worker.says("9 child workers are registered");
    const client = console(["client", "-d", "1", "--connect", at]);
    client.type("bulkping 4000");
    await client.says("PING 1000 of 4000 completed");
    worker.type("endbulk");
    await worker.says("have deregistered and ended");
    expect(client.said).not.toContain("PING 4000 of 4000 completed");
    await client.says(/PING +4000 +4000\n/);
  });
});

describe("each console", () => {
  it("writes what happens meanwhile above its prompt, and the prompt again", { timeout: 120_000 }, async () => {
    const at = await freeUrl();
    const server = console(["server", "-d", "1", "--bind", at]);
    await server.says("> ");
    const worker = console(["worker", "-d", "1", "--connect", at]);
    worker.type("register");
    await worker.says(/registered as \S+ with 10 slots\n> $/);
    expect(await server.says(/REGISTER from \S+\n> $/)).toMatch(/> \nSERVER: TRACKEXEC REGISTER from \S+\n> $/);
    const client = console(["client", "-d", "1", "--connect", at]);
    client.type("pingt");
    await client.says(/answered by \S+\n> $/);
    expect(await worker.says(/got TRACKEXEC PING from \S+\n> $/)).toMatch(
      /> \nWORKER: got TRACKEXEC PING from \S+\n> $/,
    );
  });

  it("ends at the end of its input, and deregisters before", { timeout: 120_000 }, async () => {
    const at = await freeUrl();
    const server = console(["server", "-d", "1", "--bind", at]);
    await server.says("listening on");
    const worker = console(["worker", "-d", "0", "--connect", at]);
    worker.type("bulk");
    worker.endInput();
    expect(await worker.exit()).toBe(0);
    expect(server.said.match(/EXEC DEREGISTER/g)?.length).toBe(10);
    const client = console(["client", "-d", "0", "--connect", at]);
    client.endInput();
    expect(await client.exit()).toBe(0);
    server.endInput();
    expect(await server.exit()).toBe(0);
  });

  it("reads commands from a script, wherever the lines are broken, and its exit says whether all went well", {
    timeout: 120_000,
  }, async () => {
    const at = await freeUrl();
    const server = console(["server", "-d", "0", "--bind", at]);
    await server.says("> ");
    const worker = console(["worker", "-d", "0", "--connect", at]);
    worker.type("register");
    await worker.says("> ");
    const script = join(folder(), "script");
    writeFileSync(script, "pingt ping\nbulkping\n20 data\nbulkdata 5\nquit\n");
    const client = console(["client", "-d", "1", "--connect", at, "--script", script]);
    expect(await client.exit()).toBe(0);
    expect(client.said).toMatch(/> pingt\n/);
    expect(client.said).toMatch(/PING +20 +20\n/);
    expect(client.said).toMatch(/STREAM +5 +5\n/);
    const lost = console(["client", "-d", "0", "--script", join(folder(), "none")]);
    expect(await lost.exit()).toBe(1);
    expect(lost.said).toContain("ENOENT");
  });

  it("gives up a bulk test where no server is there, and says how far it came", { timeout: 120_000 }, async () => {
    // With a time to connect of its own: `laboro rr client` gives up after ten seconds.
    const options = JSON.stringify({ url: await freeUrl(), level: 0, connectMs: 500 });
    const program = `import { runClientConsole } from "${REPOSITORY}/dist/cli/verbs/rr/programs.js";
      process.exitCode = Math.min(1, await runClientConsole(${options}));`;
    const client = new Console([program], folder(), ["--input-type=module", "--eval"]);
    consoles.push(client);
    client.type("bulkping 5000");
    expect(await client.says(/PING +10 +0\n/)).toContain("LABORO_BROKER_UNREACHABLE");
    client.type("quit");
    expect(await client.exit()).toBe(1);
  });

  it("says what it knows where a word means nothing, and goes on", { timeout: 120_000 }, async () => {
    const client = console(["client", "-d", "0", "--connect", await freeUrl()]);
    client.type("pong");
    expect(await client.says("no command pong")).toContain("bulkping N, bulkdata N, quit");
    client.type("bulkping many");
    await client.says("takes a number");
    client.type("quit");
    expect(await client.exit()).toBe(0);
  });

  it("needs -d, from 0 to 20, and takes its own options only", { timeout: 120_000 }, async () => {
    const wrong = [
      ["server"],
      ["worker", "-d", "21"],
      ["client", "-d", "loud"],
      ["manager", "-d", "1"],
      ["server", "-d", "1", "--connect", "tcp://127.0.0.1:1"],
    ];
    for (const args of wrong) {
      const one = console(args);
      expect(await one.exit()).toBe(2);
    }
  });

  it("ends in order on SIGTERM", { timeout: 120_000 }, async () => {
    const at = await freeUrl();
    const tmp = folder();
    const server = console(["server", "-d", "1", "--bind", at], tmp);
    await server.says("> ");
    server.kill("SIGTERM");
    expect(await server.exit()).toBe(0);
    expect(readdirSync(tmp)).toEqual([]);
  });

  it("listens for other machines only when told so", { timeout: 120_000 }, async () => {
    const server = console(["server", "-d", "0", "--bind", `tcp://0.0.0.0:${await freePort()}`]);
    expect(await server.exit()).not.toBe(0);
    expect(server.said).toContain("--insecure");
  });
});

describe("a server that is started again", () => {
  it("finds its workers registered again, by themselves", { timeout: 120_000 }, async () => {
    const at = await freeUrl();
    const first = console(["server", "-d", "1", "--bind", at]);
    await first.says("listening on");
    const worker = console(["worker", "-d", "1", "--connect", at]);
    worker.type("register");
    await worker.says("registered as");
    first.kill("SIGKILL");
    await worker.says("the server is gone");
    const second = console(["server", "-d", "1", "--bind", at]);
    await second.says("listening on");
    await worker.says("registered again");
    second.type("workers");
    await second.says(/1 worker\n/);
  });
});

describe("a server that is told where to keep its workers", () => {
  it("knows them when it is started again, although an original does not register twice", {
    timeout: 120_000,
  }, async () => {
    const at = await freeUrl();
    const data = join(folder(), "data");
    const args = ["server", "-d", "1", "--bind", at, "--data", data];
    const first = console(args);
    await first.says("listening on");
    const worker = await greeted(at);
    await worker.send(E, V, TRACKEXEC, "0x01000000", REGISTER, "10", E);
    await worker.next();
    // It is kept a moment after the answer, and before anything that is written later.
    expect((await laboro(["submit", "--data", data, "true"])).code).toBe(0);
    first.kill("SIGKILL");
    await first.exit();
    const second = console(args);
    await second.says("listening on");
    await until(
      "it is in the table",
      async () => {
        second.type("workers");
        return /1 worker\n/.test(await second.says(/workers? |worker\n|no workers/));
      },
      DEADLINE,
    );
  });
});

describe("laboro serve --protocol round-robin", () => {
  it("lets laboro's verbs ask round-robin workers, now and in a batch", { timeout: 120_000 }, async () => {
    const port = await freePort();
    const at = `tcp://127.0.0.1:${port}`;
    const dir = folder();
    const env = { LABORO_DATA: join(dir, "data"), HOME: dir };
    const args = ["serve", "--listen", "127.0.0.1:0", "--protocol", `round-robin=127.0.0.1:${port}`];
    const broker = spawn(process.execPath, [LABORO, ...args], { env: { ...process.env, ...env }, stdio: "ignore" });
    started.push(broker);
    expect((await laboro(["status", "--wait", "60s"], { env })).code).toBe(0);
    const worker = console(["worker", "-d", "1", "--connect", at]);
    worker.type("register");
    await worker.says("registered as");
    expect(await laboro(["request", "rr.ping"], { env })).toMatchObject({ code: 0, stdout: "" });
    const lines = join(dir, "lines");
    writeFileSync(lines, "100\n2000\n");
    expect((await laboro(["submit", "--service", "rr.stream", "--each-line", lines], { env })).stdout).toBe("1\n");
    expect((await laboro(["wait", "1"], { env })).code).toBe(0);
    expect((await laboro(["logs", "1.2"], { env })).stdout.length).toBeGreaterThan(2_000);
    const { stdout } = await laboro(["services"], { env });
    expect(stdout).toMatch(/rr\.ping +1 +10\/10 +1/);
    broker.kill("SIGTERM");
    await worker.says("the server is gone");
  });
});
