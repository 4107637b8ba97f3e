import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LABORO } from "../../../support/launched.js";
import { sites } from "../../../support/site.js";
import { until } from "../../../support/wait.js";
import { type Listener, openListener } from "../http/kit.js";
import { Yard } from "./kit.js";

const newSite = sites();

function launch(...options: string[]) {
  const site = newSite();
  return site.launch("worker", [LABORO, "worker", "--dir", site.path("w"), "--name", "w", "--slots", "2", ...options]);
}

/** As `--fuq @FILE` takes it. */
function urlFile(yard: Yard, listener: Listener): string {
  const file = yard.path("foreman");
  writeFileSync(file, `${listener.broker.joinUrl("fuq")}\n`, { mode: 0o600 });
  return `@${file}`;
}

describe("laboro worker --fuq", () => {
  it("joins by a file, with TLS and a fingerprint, and ends what runs before it leaves", async () => {
    const yard = new Yard();
    const listener = await openListener({ tls: "on" });
    const asker = listener.asker("https");
    const worker = launch("--fuq", urlFile(yard, listener));
    await worker.says("joined the foreman", 60_000);
    const command = yard.script(
      "job.sh",
      `touch ${yard.path("begun")}; while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`,
    );
    const msg = { name: "one", num_tasks: 1, working_dir: yard.dir, logging_dir: yard.dir, command };
    await listener.client("job/new", msg, asker);
    await until("it runs", () => existsSync(yard.path("begun")));
    worker.signal("SIGTERM");
    writeFileSync(yard.path("go"), "");
    await worker.ended();
    expect([worker.exitCode, worker.said]).toEqual([0, expect.stringContaining("w has stopped: SIGTERM came")]);
    expect(worker.said).not.toContain(listener.password);
    const listed = await listener.client("job/list", { status: "finished" }, asker);
    expect(listed.json).toMatchObject([{ TasksFinished: 1 }]);
  });

  it("takes the password from a file that the environment names, and the CA from another", async () => {
    const yard = new Yard();
    const listener = await openListener({ tls: "on" });
    writeFileSync(yard.path("password"), `${listener.password}\n`, { mode: 0o600 });
    const site = newSite();
    process.env.LABORO_FUQ_TOKEN = `@${yard.path("password")}`;
    const ca = join(listener.dir, "data", "ca.pem");
    // It is written when somebody first speaks TLS.
    await listener.asker("https").ask("GET", "/healthz");
    const worker = site.launch("worker", [
      ...[LABORO, "worker", "--dir", site.path("w"), "--slots", "1"],
      ...["--fuq", listener.broker.url, "--fuq-ca", ca, "--fuq-poll"],
    ]);
    delete process.env.LABORO_FUQ_TOKEN;
    await worker.says("joined the foreman", 60_000);
    const command = yard.script("job.sh", "env");
    const msg = { name: "env", num_tasks: 1, working_dir: yard.dir, logging_dir: yard.dir, command };
    await listener.client("job/new", msg, listener.asker("https"));
    const log = yard.path("env_1.log");
    await until("it is logged", () => existsSync(log) && readFileSync(log, "utf8").includes("PATH="));
    expect(readFileSync(log, "utf8")).not.toContain("LABORO_FUQ_TOKEN");
  });

  it("says what is wrong, and ends with code 3 or 2", async () => {
    const yard = new Yard();
    const listener = await openListener({ tls: "on" });
    const { host } = new URL(listener.broker.url);
    const inFile = (name: string, url: string): string => {
      writeFileSync(yard.path(name), url);
      return `@${yard.path(name)}`;
    };
    const cases: [string[], number, RegExp][] = [
      [["--fuq", inFile("a", `https://wrong@${host}#${listener.broker.ca}`)], 3, /does not know this password/],
      [["--fuq", inFile("b", `https://${listener.password}@${host}`)], 3, /certificate .* is not valid/],
      [
        ["--fuq", inFile("c", `https://${listener.password}@${host}#${"0".repeat(64)}`)],
        3,
        /expected a CA with fingerprint/,
      ],
      [["--fuq", inFile("d", "https://secret@127.0.0.1:1"), "--no-wait"], 3, /cannot be reached/],
      [["--fuq-raw", "127.0.0.1:1", "--no-wait"], 3, /cannot be reached/],
      [["--fuq", inFile("e", "http://secret@example.org")], 2, /unencrypted/],
      [["--fuq", `https://${listener.password}@${host}`], 2, /password in an argument.*LABORO_FUQ_TOKEN, or @FILE/],
      [["--fuq-raw", "nonsense"], 2, /expected HOST:PORT/],
      [["--fuq-raw", "a:1", "--fuq1", "b:2"], 2, /one foreman/],
      [["--fuq1", "127.0.0.1:1", "--pool", "x"], 2, /--pool cannot be used with/],
    ];
    const launched = cases.map(([options]) => launch(...options));
    for (const [at, worker] of launched.entries()) {
      await worker.ended();
      const [options, code, said] = cases[at] ?? [];
      expect([options, worker.exitCode, worker.said]).toEqual([options, code, expect.stringMatching(said ?? "")]);
      expect(worker.said).not.toContain(listener.password);
    }
    expect(existsSync(yard.dir)).toBe(true);
  });
});
