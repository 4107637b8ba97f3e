/** The consoles of the round-robin programs, each a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { E, greeted, REGISTER, TRACKEXEC, V } from "../protocols/round-robin/place.js";
import { LABORO } from "../support/launched.js";
import { freePort } from "../support/site.js";
import { until } from "../support/wait.js";
import { laboro } from "./support/cli.js";

const DEADLINE = 60_000;
const started: ChildProcess[] = [];
const folders: string[] = [];

afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "laboro-rr-test-"));
  folders.push(made);
  return made;
}

class Console {
  readonly #child: ChildProcess;
  #said = "";
  #looked = 0;

  constructor(args: readonly string[], tmp = folder()) {
    this.#child = spawn(process.execPath, [LABORO, "rr", ...args], { env: { ...process.env, TMPDIR: tmp } });
    started.push(this.#child);
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#said += text;
      });
    }
  }

  get said(): string {
    return this.#said;
  }

  /** Types a line. */
  type(line: string): void {
    this.#looked = this.#said.length;
    this.#child.stdin?.write(`${line}\n`);
  }

  endInput(): void {
    this.#child.stdin?.end();
  }

  /** Waits until this comes after the last line that was typed; gives what came. */
  async says(text: string | RegExp): Promise<string> {
    const fresh = (): string => this.#said.slice(this.#looked);
    await until(`it says ${text}; it said ${this.#said.slice(-500)}`, () => fresh().match(text) !== null, DEADLINE);
    return fresh();
  }

  async exit(): Promise<number | null> {
    await until("it ends", () => this.#child.exitCode !== null || this.#child.signalCode !== null, DEADLINE);
    return this.#child.exitCode;
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }
}

const url = async (): Promise<string> => `tcp://127.0.0.1:${await freePort()}`;

describe("the example of the specification", () => {
  it("does in three processes what it says, in order", { timeout: 120_000 }, async () => {
    const at = await url();
    const tmp = folder();
    const server = new Console(["server", "-d", "1", "--bind", at], tmp);
    await server.says("listening on");
    const worker = new Console(["worker", "-d", "5", "--connect", at]);
    const client = new Console(["client", "-d", "1", "--connect", at]);
    await worker.says("> ");
    await client.says("> ");

    worker.type("register");
    await worker.says(/registered as (\S+) with 10 slots\n> $/);
    server.type("workers");
    expect(await server.says(/1 worker\n> /)).toMatch(new RegExp(`${at}:\\d+ +10 +10`));

    client.type("pingt");
    const answered = await client.says(/TRACKEXEC PING was answered by \S+/);
    expect(worker.said).toContain("got TRACKEXEC PING from");
    const [, pinged = "nobody"] = /registered as (\S+)/.exec(worker.said) ?? [];
    const [, asking = "nobody"] = /SERVER: TRACKEXEC PING from (\S+)\n/.exec(server.said) ?? [];
    await server.says(`SERVER: RESPONSE from ${pinged}, passed back to ${asking}\n`);
    expect(answered).toContain(/registered as (\S+)/.exec(worker.said)?.[1] ?? "nobody");
    client.type("ping");
    await client.says("EXEC PING was sent");
    await worker.says("got EXEC PING from");

    worker.type("bulk");
    await worker.says("9 child workers are registered");
    server.type("workers");
    await server.says(/10 workers\n/);

    client.type("bulkping 100");
    const pings = await client.says(/PING +100 +100\n/);
    expect(pings).toContain("PING 50 of 100 completed");
    client.type("bulkdata 100");
    const streams = await client.says(/STREAM +100 +100\n/);
    expect(streams).toContain("STREAM 100 of 100 completed");

    worker.type("endbulk");
    expect(await worker.says(/together: \d+ messages, \d+ succeeded, 0 failed/)).toContain("have deregistered");
    await until("one worker is left", async () => {
      server.type("workers");
      return /1 worker\n/.test(await server.says(/workers?\n> $/));
    });
    worker.type("deregister");
    await worker.says("deregistered");
    await until("none is left", async () => {
      server.type("workers");
      return (await server.says(/(workers?|registered)\n> $/)).includes("no workers are registered");
    });
    worker.type("quit");
    expect(await worker.exit()).toBe(0);
    server.type("quit");
    expect(await server.exit()).toBe(0);
    client.type("quit");
    expect(await client.exit()).toBe(0);
    expect(readdirSync(tmp)).toEqual([]);
  });
});

describe("workers that end in the middle of a bulk test", () => {
  it("fail none of its messages", { timeout: 120_000 }, async () => {
    const at = await url();
    const server = new Console(["server", "-d", "0", "--bind", at]);
    await server.says("> ");
    const worker = new Console(["worker", "-d", "1", "--connect", at]);
    worker.type("register bulk");
    await worker.says("9 child workers are registered");
    const client = new Console(["client", "-d", "1", "--connect", at]);
    client.type("bulkping 10000");
    await client.says("PING 3000 of 10000 completed");
    worker.type("endbulk");
    await worker.says("have deregistered and ended");
    expect(client.said).not.toContain("PING 10000 of 10000 completed");
    await client.says(/PING +10000 +10000\n/);
  });
});

describe("each console", () => {
  it("shows at -d 0 its prompt and results, and nothing else where nothing fails", { timeout: 120_000 }, async () => {
    const at = await url();
    const server = new Console(["server", "-d", "0", "--bind", at]);
    await server.says("> ");
    const worker = new Console(["worker", "-d", "0", "--connect", at]);
    const client = new Console(["client", "-d", "0", "--connect", at]);
    worker.type("register bulk");
    client.type("pingt ping data bulkping 20");
    await client.says(/PING +20 +20\n> $/);
    server.type("workers");
    await server.says(/10 workers\n> $/);
    worker.type("endbulk deregister quit");
    expect(await worker.exit()).toBe(0);
    for (const one of [client, server]) {
      one.type("quit");
      expect(await one.exit()).toBe(0);
    }
    expect(worker.said).toMatch(/^(> )+$/);
    expect(client.said).toMatch(/^(> )+TYPE +SENT +SUCCEEDED\nPING +20 +20\n> $/);
    expect(server.said.split("\n").filter((line) => /[a-z]: /i.test(line))).toEqual([]);
  });

  it("writes what happens meanwhile above its prompt, and the prompt again", { timeout: 120_000 }, async () => {
    const at = await url();
    const server = new Console(["server", "-d", "1", "--bind", at]);
    await server.says("> ");
    const worker = new Console(["worker", "-d", "1", "--connect", at]);
    worker.type("register");
    await worker.says(/registered as \S+ with 10 slots\n> $/);
    expect(await server.says(/REGISTER from \S+\n> $/)).toMatch(/> \nSERVER: TRACKEXEC REGISTER from \S+\n> $/);
    const client = new Console(["client", "-d", "1", "--connect", at]);
    client.type("pingt");
    await client.says(/answered by \S+\n> $/);
    expect(await worker.says(/got TRACKEXEC PING from \S+\n> $/)).toMatch(
      /> \nWORKER: got TRACKEXEC PING from \S+\n> $/,
    );
  });

  it("ends at the end of its input, and deregisters before", { timeout: 120_000 }, async () => {
    const at = await url();
    const server = new Console(["server", "-d", "1", "--bind", at]);
    await server.says("listening on");
    const worker = new Console(["worker", "-d", "0", "--connect", at]);
    worker.type("bulk");
    worker.endInput();
    expect(await worker.exit()).toBe(0);
    expect(server.said.match(/EXEC DEREGISTER/g)?.length).toBe(10);
    const client = new Console(["client", "-d", "0", "--connect", at]);
    client.endInput();
    expect(await client.exit()).toBe(0);
    server.endInput();
    expect(await server.exit()).toBe(0);
  });

  it("reads commands from a script, wherever the lines are broken, and its exit says whether all went well", {
    timeout: 120_000,
  }, async () => {
    const at = await url();
    const server = new Console(["server", "-d", "0", "--bind", at]);
    await server.says("> ");
    const worker = new Console(["worker", "-d", "0", "--connect", at]);
    worker.type("register");
    await worker.says("> ");
    const script = join(folder(), "script");
    writeFileSync(script, "pingt ping\nbulkping\n20 data\nbulkdata 5\nquit\n");
    const client = new Console(["client", "-d", "1", "--connect", at, "--script", script]);
    expect(await client.exit()).toBe(0);
    expect(client.said).toMatch(/> pingt\n/);
    expect(client.said).toMatch(/PING +20 +20\n/);
    expect(client.said).toMatch(/STREAM +5 +5\n/);
    const lost = new Console(["client", "-d", "0", "--script", join(folder(), "none")]);
    expect(await lost.exit()).toBe(1);
    expect(lost.said).toContain("ENOENT");
  });

  it("gives up a bulk test where no server is there, and says how far it came", { timeout: 120_000 }, async () => {
    const client = new Console(["client", "-d", "0", "--connect", await url()]);
    client.type("bulkping 5000");
    expect(await client.says(/PING +10 +0\n/)).toContain("LABORO_BROKER_UNREACHABLE");
    client.type("quit");
    expect(await client.exit()).toBe(1);
  });

  it("says what it knows where a word means nothing, and goes on", { timeout: 120_000 }, async () => {
    const client = new Console(["client", "-d", "0", "--connect", await url()]);
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
      const one = new Console(args);
      expect(await one.exit()).toBe(2);
    }
  });

  it("ends in order on SIGTERM", { timeout: 120_000 }, async () => {
    const at = await url();
    const tmp = folder();
    const server = new Console(["server", "-d", "1", "--bind", at], tmp);
    await server.says("> ");
    server.signal("SIGTERM");
    expect(await server.exit()).toBe(0);
    expect(readdirSync(tmp)).toEqual([]);
  });

  it("listens for other machines only when told so", { timeout: 120_000 }, async () => {
    const server = new Console(["server", "-d", "0", "--bind", `tcp://0.0.0.0:${await freePort()}`]);
    expect(await server.exit()).not.toBe(0);
    expect(server.said).toContain("--insecure");
  });
});

describe("a server that is started again", () => {
  it("finds its workers registered again, by themselves", { timeout: 120_000 }, async () => {
    const at = await url();
    const first = new Console(["server", "-d", "1", "--bind", at]);
    await first.says("listening on");
    const worker = new Console(["worker", "-d", "1", "--connect", at]);
    worker.type("register");
    await worker.says("registered as");
    first.signal("SIGKILL");
    await worker.says("the server is gone");
    const second = new Console(["server", "-d", "1", "--bind", at]);
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
    const at = await url();
    const data = join(folder(), "data");
    const args = ["server", "-d", "1", "--bind", at, "--data", data];
    const first = new Console(args);
    await first.says("listening on");
    const worker = await greeted(at);
    await worker.send(E, V, TRACKEXEC, "0x01000000", REGISTER, "10", E);
    await worker.next();
    // It is kept a moment after the answer, and before anything that is written later.
    expect((await laboro(["submit", "--data", data, "true"])).code).toBe(0);
    first.signal("SIGKILL");
    await first.exit();
    const second = new Console(args);
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
    const worker = new Console(["worker", "-d", "1", "--connect", at]);
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
