/** After kill -9 a directory is free at once, also for a process in a new process namespace, as in a restarted container. */
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openPlace } from "../cli/run/place.js";
import { freePort } from "../support/free-port.js";
import { LABORO, type Launched } from "../support/launched.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"];
const mayUnshare = spawnSync("unshare", ["--pid", "--fork", "true"]).status === 0;
if (!mayUnshare) console.log("unshare --pid is not permitted here: restarts in a new namespace are not tested");

type Launch = (site: Site, prefix: readonly string[]) => Promise<Launched> | Launched;

const serve: Launch = (site, prefix) =>
  site.launch("serve", [LABORO, "serve", "--data", site.data, "--listen", "127.0.0.1:0"], { prefix });

const worker: Launch = async (site, prefix) => {
  if (!fs.existsSync(site.data)) await site.startBroker();
  const args = ["worker", "--data", site.data, "--dir", site.path("one"), "--name", "one"];
  return site.launch("worker", [LABORO, ...args], { prefix });
};

const experiments: Launch = async (site, prefix) => {
  fs.mkdirSync(site.path("study/runs"), { recursive: true });
  fs.writeFileSync(site.path("study/runs/one.sh"), "sleep 600\n");
  const args = ["experiments", site.path("study"), "-v", "-p", String(await freePort())];
  return site.launch("experiments", [LABORO, ...args], { prefix });
};

describe.each([
  ["serve", serve, "listening on"],
  ["worker", worker, "joined the broker"],
  ["experiments", experiments, "listening for runners at"],
])("laboro %s", (_name, launch, ready) => {
  it("that was killed starts at once, and a second one is refused", async () => {
    const prefix = mayUnshare ? NAMESPACE : [];
    const site = newSite();
    const first = await launch(site, prefix);
    await first.says(ready);
    const second = await launch(site, prefix);
    await second.ended();
    expect(second.said).toContain("LABORO_DATA_IN_USE");
    const inside = childrenOf(first.pid);
    await first.end("SIGKILL");
    await untilEnded(inside);
    const third = await launch(site, prefix);
    await third.says(ready);
    await third.end("SIGKILL");
    // A worker's guardian removes its temporary files, but it ends with the namespace.
    if (prefix.length > 0)
      for (const name of fs.readdirSync(site.tmp)) fs.rmSync(join(site.tmp, name), { recursive: true });
  });
});

it.skipIf(!mayUnshare)(
  "laboro run that was killed goes on at once in a new namespace (needs unshare --pid)",
  async () => {
    const place = openPlace();
    const task = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo ended";
    // What ends with its namespace leaves its temporary files.
    const line = `exec env TMPDIR="$PWD" ${NAMESPACE.join(" ")} '${process.execPath}' '${LABORO}' run --jobs 2 '${task}'`;
    const first = place.shell(line);
    await until("it runs", () => first.output().includes("begun"));
    const inside = childrenOf(Number(first.child.pid));
    first.child.kill("SIGKILL");
    await untilEnded(inside);
    fs.writeFileSync(place.file("go"), "");
    const { code, stdout, stderr } = await place.shell(line).said;
    expect([code, stdout]).toEqual([0, expect.stringContaining("ended")]);
    expect(stderr).toContain("resuming job 1");
  },
);

const untilEnded = (pids: readonly string[]): Promise<unknown> =>
  until("the processes in the namespace have ended", () => pids.every((pid) => !fs.existsSync(`/proc/${pid}/fd/0`)));

const childrenOf = (pid: number): string[] =>
  fs
    .readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
    .trim()
    .split(" ")
    .filter((text) => text !== "");
