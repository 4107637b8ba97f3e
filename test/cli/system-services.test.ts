/** systemd units, and the container as far as it can be checked without a container engine. */
import { spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { makeProgram } from "../../src/cli/lib/program.js";
import { atEnd } from "../support/at-end.js";
import { LABORO, REPOSITORY } from "../support/launched.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";
import { laboro } from "./support/cli.js";

const newSite = sites();
const EXAMPLES = join(REPOSITORY, "examples");
const UNITS = ["system", "user"].flatMap((scope) =>
  readdirSync(join(EXAMPLES, "systemd", scope)).map((name) => [scope, name] as const),
);

/** Whether the programs are there; says so if not. */
function has(what: string, ...commands: readonly (readonly [string, ...string[]])[]): boolean {
  const missing = commands.filter(([file, ...args]) => spawnSync(file, args).status !== 0);
  for (const [file] of missing) console.log(`${file} cannot be used here: ${what} not tested`);
  return missing.length === 0;
}

describe("the systemd units", () => {
  it.skipIf(!has("units are", ["systemd-analyze", "--version"]))(
    "are valid for systemd (needs systemd-analyze)",
    () => {
      const runtime = newSite().dir;
      expect(UNITS.length).toBe(4);
      for (const [scope, name] of UNITS) {
        const args = ["verify", "--man=no", `--${scope}`, join(EXAMPLES, "systemd", scope, name)];
        const { status, stderr } = spawnSync("systemd-analyze", args, {
          encoding: "utf8",
          env: { ...process.env, XDG_RUNTIME_DIR: runtime },
        });
        expect([name, status, stderr]).toEqual([name, 0, ""]);
      }
    },
  );

  const canNotify = has("readiness is", ["systemd-notify", "--version"], ["perl", "-MSocket", "-e", "1"]);
  it.skipIf(!canNotify)(
    "learn when broker and worker are ready, and their tasks cannot speak for them (needs systemd-notify and perl)",
    async () => {
      const site = newSite();
      const path = site.path("notify");
      const script = `socket(S, AF_UNIX, SOCK_DGRAM, 0); bind(S, sockaddr_un($ARGV[0])); $| = 1; print "open\\n";
      while (defined recv(S, $_, 4096, 0)) { s/\\n/ /g; print "$_\\n" }`;
      const listener = spawn("perl", ["-MSocket", "-e", script, path], { stdio: ["ignore", "pipe", "inherit"] });
      atEnd(() => listener.kill());
      let said = "";
      listener.stdout.on("data", (text) => {
        said += text;
      });
      const hears = (text: string | RegExp) =>
        until(
          () => `${text} in ${said}`,
          () => said.match(text) !== null,
        );
      await hears("open");
      const env = { NOTIFY_SOCKET: path };
      const broker = site.launch("broker", [LABORO, "serve", "--data", site.data, "--listen", "127.0.0.1:0"], { env });
      await hears(/READY=1 STATUS=listening on http:.*\n/);
      const worker = site.launch("worker", [LABORO, "worker", "--data", site.data, "--dir", site.path("w")], { env });
      await hears(/READY=1 STATUS=looking for the broker\s+.*READY=1 STATUS=joined its broker/s);
      const { stdout } = await laboro(["run", "--data", site.data, "--", "env"], { process: true });
      expect(stdout).toContain("LABORO_JOB=");
      expect(stdout).not.toContain("NOTIFY_SOCKET");
      await broker.end("SIGKILL");
      await hears("STATUS=trying to reach its broker");
      await worker.end("SIGTERM");
    },
  );
});

describe("the container", () => {
  const containerfile = readFileSync(join(EXAMPLES, "container", "Containerfile"), "utf8");
  const compose = readFileSync(join(EXAMPLES, "container", "compose.yaml"), "utf8");
  /** `["serve", "--listen"]`, as both files write commands. */
  const commands = Array.from(`${containerfile}${compose}`.matchAll(/(?:CMD |command: )(\[.*\])/g), ([, text = ""]) =>
    (JSON.parse(text) as string[]).filter((word) => word !== "laboro"),
  );

  it("names verbs and options that there are, and another user than root", async () => {
    expect(commands.map(([verb]) => verb)).toEqual(["status", "serve", "serve", "worker"]);
    const program = await makeProgram("all");
    for (const [verb, ...words] of commands) {
      const known = program.commands.find((command) => command.name() === verb);
      expect(known?.parseOptions([...words]).unknown).toEqual([]);
    }
    expect(containerfile).toMatch(/^USER node$/m);
  });

  it("has none of the compose file's secrets in the package, which the image is made of, or in the context of its build", () => {
    const secrets = Array.from(compose.matchAll(/\{ file: \.\/(\S+) \}/g), ([, name = ""]) => name);
    expect(secrets.length).toBe(2);
    // Written by a command of the guide.
    secrets.push("client.url");
    const clone = newSite().dir;
    cpSync(join(EXAMPLES, "container"), join(clone, "examples/container"), { recursive: true });
    cpSync(join(REPOSITORY, "package.json"), join(clone, "package.json"));
    for (const name of secrets) writeFileSync(join(clone, "examples/container", name), "secret");
    const { stdout } = spawnSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      ...{ cwd: clone, encoding: "utf8" },
    });
    expect(stdout).toContain("examples/container/compose.yaml");
    const outside = readFileSync(join(REPOSITORY, ".dockerignore"), "utf8").split("\n");
    for (const name of secrets) {
      expect(stdout).not.toContain(`examples/container/${name}`);
      expect(outside).toContain(`examples/container/${name}`);
    }
  });

  const unshare = ["unshare", "--pid", "--fork", "--kill-child"] as const;
  it.skipIf(!has("a container's restart is", [...unshare, "true"]))(
    "finds its data unlocked after kill -9, and is healthy again by its own health check (needs unshare --pid)",
    async () => {
      const site = newSite();
      const [, serve = []] = commands;
      const env = { LABORO_DATA: site.data, PATH: process.env.PATH };
      // As in the container, but for the port, which may be in use here.
      const args = serve.map((word) => (word === "0.0.0.0" ? "0.0.0.0:0" : word));
      const start = () => site.launch("broker", [LABORO, ...args], { env, prefix: unshare });
      const health = async () => (await laboro(commands[0] ?? [], { env, process: true })).code;
      const first = start();
      await first.says("client.url");
      expect(await health()).toBe(0);
      await laboro(["submit", "--name", "kept", "true"], { env });
      const inside = Number(readFileSync(`/proc/${first.pid}/task/${first.pid}/children`, "utf8"));
      await first.end("SIGKILL");
      // It ends with its parent, a moment later.
      await until("the broker has ended", () => !existsSync(`/proc/${inside}/fd/0`));
      const second = start();
      await second.says("client.url");
      expect(second.said).not.toContain("LABORO_DATA_IN_USE");
      expect(await health()).toBe(0);
      expect((await laboro(["status"], { env })).stdout).toContain("kept");
      await second.end("SIGKILL");
    },
  );
});
