/** `laboro ssh start`, `list` and `stop` beside a broker of its own process, and what is left when that or the connection dies. */
import * as fs from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd, openOnce } from "../../support/at-end.js";
import { resultsOf } from "../../support/batch.js";
import { processesWith } from "../../support/process-table.js";
import { type Site, sites } from "../../support/site.js";
import { NO_SSHD, openSshd } from "../../support/sshd.js";
import { until } from "../../support/wait.js";
import { laboro, type Said } from "../support/cli.js";

const newSite = sites();

describe.skipIf(NO_SSHD !== undefined)(`laboro ssh${NO_SSHD === undefined ? "" : ` (${NO_SSHD})`}`, () => {
  const sshd = openOnce(async () => {
    const opened = await openSshd();
    await opened.machine("one");
    await opened.machine("two");
    return opened;
  });

  /** A broker, and a command line with connections of its own. */
  async function open(): Promise<{
    site: Site;
    ssh: (...words: string[]) => Promise<Said>;
    keepers: () => number[];
    tmp: string;
  }> {
    const site = newSite();
    const tmp = fs.mkdtempSync(join(sshd().dir, "t"));
    const env = { LABORO_DATA: site.data, HOME: site.dir, LABORO_SSH: sshd().command, TMPDIR: tmp };
    const keepers = (): number[] =>
      processesWith(`TMPDIR=${tmp}`).flatMap(({ pid, command }) => (command.includes("ssh keep") ? [pid] : []));
    const ssh = (...words: string[]): Promise<Said> => laboro(["ssh", ...words], { env });
    atEnd(async () => {
      await ssh("stop", "all", "--now");
      for (const pid of keepers()) process.kill(pid, "SIGKILL");
    });
    await site.startBroker();
    return { site, ssh, keepers, tmp };
  }

  const workersOn = (name: string): number[] =>
    sshd()
      .processes(name)
      .filter(({ command }) => command.includes("/worker-") && command.includes("--tunnels"))
      .map(({ pid }) => pid);

  /** Says that it runs, and ends when the file is there. */
  const waiting = (site: Site) => {
    const line = `echo x >>'${site.path("began")}'; until [ -e '${site.path("go")}' ]; do sleep 0.05; done; echo done`;
    return { kind: "command", argv: [line], shell: true } as const;
  };
  const begun = (site: Site): boolean => fs.existsSync(site.path("began"));

  it("starts workers with the slots that were given, lists them, and stops them when their tasks have ended", async () => {
    const { site, ssh, keepers, tmp } = await open();
    const said = await ssh("start", "one/3", "two/1", "127.0.0.1:1");
    expect(said).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("127.0.0.1:1 is not used: nothing listens"),
    });
    expect(said.stdout.split("\n").toSorted()).toEqual([
      "",
      "one: worker one has joined",
      "two: worker two has joined",
    ]);
    const client = await site.client();
    const { workers } = await client.ask("workers", {});
    expect(workers.map(({ name, total }) => `${name} ${total.slots}`).toSorted()).toEqual(["one 3", "two 1"]);
    const listed = JSON.parse((await ssh("list", "--json")).stdout) as { machines: { host: string; state: string }[] };
    expect(listed.machines.map(({ host, state }) => `${host} ${state}`)).toEqual([
      ...["one joined", "two joined", "127.0.0.1:1 failed"],
    ]);
    const job = await client.submit({ recipe: waiting(site) });
    await until("it runs", () => begun(site));
    const stopped = ssh("stop", "all");
    await until("the idle one has left", () => workersOn("one").length + workersOn("two").length === 1);
    fs.writeFileSync(site.path("go"), "");
    expect((await stopped).code).toBe(0);
    expect(await resultsOf(job)).toMatchObject([{ attempt: 1, state: "succeeded" }]);
    expect([workersOn("one"), workersOn("two"), keepers()]).toEqual([[], [], []]);
    // The folder of the user's sockets stays, those of the connections do not.
    expect(fs.readdirSync(tmp)).toEqual([`laboro-${userInfo().uid}`]);
  });

  it("gives the workers the token for workers only", async () => {
    const { site, ssh } = await open();
    await ssh("start", "one");
    const folder = join(sshd().dir, "one-home/.local/share/laboro/ssh");
    const urls = fs
      .readdirSync(folder)
      .map((name) => join(folder, name, "join.url"))
      .filter(fs.existsSync);
    const [text = ""] = urls.map((file) => fs.readFileSync(file, "utf8"));
    const tokens = JSON.parse(fs.readFileSync(join(site.data, "tokens.json"), "utf8")) as {
      role: string;
      token: string;
    }[];
    expect(tokens.filter(({ token }) => text.includes(token)).map(({ role }) => role)).toEqual(["worker"]);
    expect(text).not.toContain(site.token);
    expect(urls.map((file) => fs.statSync(file).mode & 0o777)).toEqual([0o600]);
  });

  it("loses nothing when the broker is killed: a worker with --stay keeps the result, and delivers it", async () => {
    const { site, ssh } = await open();
    expect((await ssh("start", "one/1", "--stay")).code).toBe(0);
    const job = await (await site.client()).submit({ recipe: waiting(site) });
    await until("it runs", () => begun(site));
    await site.broker.end("SIGKILL");
    fs.writeFileSync(site.path("go"), "");
    await site.startBroker();
    const again = await site.client();
    expect(await again.job(job.id).wait()).toBe("succeeded");
    const results = await resultsOf(again.job(job.id));
    console.log(`broker killed: lost: ${1 - results.length}`);
    expect(results).toMatchObject([{ attempt: 1, worker: "one" }]);
  });

  it("finds a worker with --stay again when the process that kept its connection was killed", async () => {
    const { site, ssh, keepers } = await open();
    await ssh("start", "one/1", "--stay");
    const before = workersOn("one");
    const job = await (await site.client()).submit({ recipe: waiting(site) });
    await until("it runs", () => begun(site));
    for (const pid of keepers()) process.kill(pid, "SIGKILL");
    sshd().cut("one");
    await until("the tunnel is gone", async () =>
      (await (await site.client()).ask("workers", {})).workers.every(({ connected }) => !connected),
    );
    expect((await ssh("start", "one/1", "--stay")).code).toBe(0);
    fs.writeFileSync(site.path("go"), "");
    expect(await job.wait()).toBe("succeeded");
    expect(await resultsOf(job)).toMatchObject([{ attempt: 1 }]);
    expect([before.length, workersOn("one")]).toEqual([1, before]);
  });

  it("refuses what it cannot do, with an example", async () => {
    const { ssh } = await open();
    for (const [words, code, why] of [
      [["start"], 2, /name the machines: \[USER@\]HOST/],
      [["start", ":"], 2, /laboro worker, not by :/],
      [["start", "one", "--archive", "/no/such/file"], 2, /--archive: \/no\/such\/file cannot be read/],
      [["stop"], 2, /name the machines, or all/],
      [["stop", "one"], 2, /no machine is connected/],
      [["restart", "one"], 2, /expected start, list or stop, got restart/],
    ] as const) {
      const said = await ssh(...words);
      expect([said.code, said.stderr]).toEqual([code, expect.stringMatching(why)]);
    }
    expect((await ssh("list")).stdout).toMatch(/no machine is connected/);
  });
});
