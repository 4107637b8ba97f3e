import { spawn } from "node:child_process";
import { existsSync, readFileSync, renameSync, statSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { freePort } from "../support/free-port.js";
import { LABORO } from "../support/launched.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";
import { laboro, steady } from "./support/cli.js";

const newSite = sites();

const serve = (site: Site, ...args: string[]) =>
  site.launch("the broker", [LABORO, "serve", "--data", site.data, ...args]);

describe("laboro serve", () => {
  it("says where it listens, and how a worker joins without the token in its arguments", async () => {
    const site = newSite();
    const broker = serve(site, "--listen", "127.0.0.1:0", "--heartbeat", "500ms", "--grace", "30s");
    await broker.says("@client.url");
    const said = broker.said.split("\n").filter((line) => !line.startsWith("{"));
    expect(
      steady(
        said
          .join("\n")
          .replaceAll(site.dir, "DIR")
          .replaceAll(/:\d{4,5}/g, ":PORT"),
      ),
    ).toMatchInlineSnapshot(`
      "listening on http://127.0.0.1:PORT
      a worker joins with
        laboro worker --join @DIR/data/join.url
      where it can read that file, or a copy of it
      on this machine, the other verbs find it with --data DIR/data; elsewhere they need the URL in DIR/data/client.url
        laboro status --broker @client.url
      ended jobs are kept for 30d, those that did not succeed for 90d (--keep, --keep-failed)"
    `);
    for (const name of ["join.url", "client.url"]) expect(statSync(join(site.data, name)).mode & 0o777).toBe(0o600);
    const elsewhere = { env: { LABORO_DATA: site.path("nothing") } };
    const asClient = await laboro(["status", "--broker", `@${join(site.data, "client.url")}`], elsewhere);
    expect([asClient.code, asClient.stdout]).toEqual([0, expect.stringContaining("no worker is connected")]);
    const asWorker = await laboro(["submit", "--broker", `@${join(site.data, "join.url")}`, "true"], elsewhere);
    expect([asWorker.code, asWorker.stderr]).toEqual([1, expect.stringContaining("use that in client.url")]);
    const joined = site.launch("worker", [
      LABORO,
      "worker",
      "--join",
      `@${join(site.data, "join.url")}`,
      "--name",
      "w1",
      "--dir",
      site.path("w1"),
    ]);
    await joined.says("joined the broker");
    const { stdout } = await laboro(["workers", "--data", site.data], { process: true });
    expect(stdout).toMatch(/^w1 +ready/m);
    broker.signal("SIGTERM");
    await broker.ended();
    expect([broker.exitCode, broker.said]).toEqual([
      0,
      expect.stringMatching(/^the broker has stopped: SIGTERM came$/m),
    ]);
  });

  it("ends when its data directory was moved away, before output goes elsewhere than the rows", async () => {
    const site = newSite();
    const listen = ["--listen", `127.0.0.1:${await freePort()}`];
    const broker = serve(site, ...listen);
    await broker.says("@client.url");
    const worker = site.launch("worker", [LABORO, "worker", "--data", site.data, "--dir", site.path("w1")]);
    await worker.says("joined the broker");
    const moved = site.path("moved");
    renameSync(site.data, moved);
    await laboro(["submit", "--broker", `@${join(moved, "client.url")}`, "--", "head", "-c", "9000", "/dev/zero"]);
    await broker.ended();
    expect([broker.exitCode, broker.said]).toEqual([1, expect.stringMatching(/cannot write output to .*ENOENT/)]);
    expect(existsSync(site.data)).toBe(false);
    const again = site.launch("the broker", [LABORO, "serve", "--data", moved, ...listen]);
    await again.says("@client.url");
    await laboro(["wait", "1", "--data", moved], { process: true });
    expect((await laboro(["logs", "1", "--data", moved], { process: true })).stdout).toHaveLength(9000);
  });

  it("shows a token to a person at a terminal, and to nothing else", async () => {
    const site = newSite();
    const words = [process.execPath, LABORO, "serve", "--data", site.data, "--listen", "127.0.0.1:0"];
    const terminal = spawn("script", ["-qec", words.map((word) => `'${word}'`).join(" "), "/dev/null"]);
    let shown = "";
    terminal.stdout.setEncoding("utf8").on("data", (text: string) => (shown += text));
    await until("it listens", () => shown.includes("client.url"));
    const ended = new Promise((resolve) => terminal.once("close", resolve));
    // Ctrl-C
    terminal.stdin.write("\x03");
    await ended;
    const url = readFileSync(join(site.data, "join.url"), "utf8").trim();
    expect(shown).toContain(`LABORO_BROKER=${url} laboro worker`);
    const piped = serve(site, "--listen", "127.0.0.1:0");
    await piped.says("client.url");
    expect(piped.said).not.toContain(new URL(url).username);
  });

  it("names the peer of a fault on a terminal, as its log does elsewhere", async () => {
    const site = newSite();
    const port = await freePort();
    const options = ["--data", site.data, "--listen", "127.0.0.1:0", "--protocol", `fuq=127.0.0.1:${port}`];
    const words = [process.execPath, LABORO, "serve", ...options];
    const terminal = spawn("script", ["-qec", words.map((word) => `'${word}'`).join(" "), "/dev/null"]);
    let shown = "";
    terminal.stdout.setEncoding("utf8").on("data", (text: string) => (shown += text));
    await until("it listens", () => shown.includes("client.url"));
    connect(port, "127.0.0.1")
      .end("GET / HTTP/1.1\r\n\r\n".repeat(8))
      .on("error", () => {});
    await until("the fault is shown", () => shown.includes("laboro: 127.0.0.1, listener fuq: fuq: "));
    const ended = new Promise((resolve) => terminal.once("close", resolve));
    // Ctrl-C
    terminal.stdin.write("\x03");
    await ended;
  });

  it("opened to other machines speaks TLS, and its join URL holds the fingerprint", async () => {
    const site = newSite();
    const broker = serve(site, "--listen", "0.0.0.0:0", "--advertise", "localhost");
    await broker.says("listening on");
    const url = readFileSync(join(site.data, "join.url"), "utf8");
    expect(url).toMatch(/^https:\/\/[\w-]+@localhost:\d+#[0-9a-f]{64}\n$/);
    const { code, stdout } = await laboro(["status"], { env: { LABORO_DATA: site.data } });
    expect([code, stdout]).toEqual([0, expect.stringContaining("no worker is connected")]);
  });

  it("refuses a port that is taken, and an address that is none", async () => {
    const site = newSite();
    const port = await freePort();
    const first = serve(site, "--listen", `127.0.0.1:${port}`);
    await first.says("listening on");
    const taken = await laboro(["serve", "--data", site.path("other"), "--listen", `127.0.0.1:${port}`]);
    expect([taken.code, taken.stderr]).toEqual([
      2,
      expect.stringContaining("something else listens there (LABORO_BAD_INPUT)"),
    ]);
    const bad = await laboro(["serve", "--data", site.path("third"), "--listen", "127.0.0.1:99999"]);
    expect([bad.code, bad.stderr]).toEqual([2, expect.stringContaining("expected ADDRESS or ADDRESS:PORT")]);
  });

  it("refuses options of protocols that are not named", async () => {
    const said = async (...options: string[]): Promise<string> =>
      (await laboro(["serve", "--data", newSite().path("data"), ...options])).stderr;
    expect(await said("--curve", "--protocol", "fuq=127.0.0.1:0")).toContain(
      "--curve is for --protocol round-robin and",
    );
    expect(await said("--identity", "tcp://a:1")).toContain("--identity is for --protocol round-robin");
    expect(await said("--rr-timeout", "1s", "--protocol", "scale0")).toContain("--rr-timeout is for --protocol round-");
  });

  it("does not start where another broker is", async () => {
    const site = newSite();
    await serve(site, "--listen", "127.0.0.1:0").says("listening on");
    const { code, stderr } = await laboro(["serve", "--data", site.data, "--listen", "127.0.0.1:0"]);
    expect([code, stderr]).toEqual([1, expect.stringContaining("(LABORO_DATA_IN_USE)")]);
  });
});
