import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "@photostructure/sqlite";
import { describe, expect, it } from "vitest";
import { checkInodes } from "../../src/cli/verbs/doctor.js";
import { NO_MOUNT, smallDisk } from "../files/scratch.js";
import { atEnd } from "../support/at-end.js";
import { TRUE } from "../support/recipes.js";
import { laboro, openCliBroker, steady } from "./support/cli.js";

/** What depends on the machine. */
const general = (text: string): string =>
  text
    .replace(/laboro [\d.]+ on Node [\d.]+/, "laboro VERSION on Node VERSION")
    .replace(/it is laboro [\d.]+/, "it is laboro VERSION")
    .replace(/[\d.]+ [GTM]iB are free/, "SPACE is free")
    .replace(/\S+ files may/, "MANY files may")
    .replace(/process \d+ on \S+,/, "process N on HOST,");

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-doctor-"));
  atEnd(() => rmSync(dir, { recursive: true }));
  return dir;
}

describe("laboro doctor", () => {
  it("looks at the machine, the data directory and the broker, one line each", async () => {
    const setup = await openCliBroker();
    const { code, stdout, stderr } = await setup.laboro(["doctor"], { process: true });
    expect([code, stderr]).toEqual([0, ""]);
    expect(general(steady(stdout, setup))).toMatchInlineSnapshot(`
      "ok  laboro VERSION on Node VERSION
      ok  /bin/sh is there
      ok  MANY files may be open at once (ulimit -Hn)
      ok  the data directory DIR/data has mode 0700
      ok  it is on a local filesystem
      ok  SPACE is free there
      ok  only you can read access.json, tokens.json
      ok  it is in use by process N on HOST, which checked it when it started
      ok  the broker at URL answers in TIME (found by DIR/data/access.json)
      ok  it is laboro VERSION, as here
      ok  its clock agrees with this one
      warn  it has no worker, so that nothing can run; start one: laboro worker"
    `);
    const { checks } = JSON.parse((await setup.laboro(["doctor", "--json"])).stdout);
    expect(checks).toHaveLength(stdout.trimEnd().split("\n").length);
  });

  it("finds a token that others can read, and a broker that does not answer", async () => {
    const setup = await openCliBroker();
    await setup.broker.stop();
    chmodSync(join(setup.data, "access.json"), 0o644);
    const { code, stdout } = await setup.laboro(["doctor"]);
    expect(code).toBe(1);
    const failures = stdout.split("\n").filter((line) => line.startsWith("FAIL"));
    expect(steady(failures.join("\n"), setup)).toMatchInlineSnapshot(`
      "FAIL  others can read access.json; chmod 600 DIR/data/access.json, and start the broker with a new token
      FAIL  no broker answers at URL: nothing listens there; is it running, is the address right, and does a firewall let its port through?"
    `);
    expect(stdout).toContain("no broker runs there; its database is intact");
  });

  it("finds a database that is damaged", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    await setup.broker.stop();
    truncateSync(join(setup.data, "store.db"), 5_000);
    const { code, stdout } = await setup.laboro(["doctor"]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^FAIL .*store\.db.*restore it from a backup/m);
  });

  it("names what is in the way of files, and sends nobody to a backup for it", async () => {
    const setup = await openCliBroker();
    await setup.broker.stop();
    const failures = async (): Promise<string> => {
      const { stdout } = await setup.laboro(["doctor"]);
      const lines = stdout.split("\n").filter((line) => line.startsWith("FAIL"));
      return steady(lines.slice(0, -1).join("\n"), setup);
    };
    expect(await failures()).toBe("");
    const database = new DatabaseSync(join(setup.data, "store.db"));
    database.exec("PRAGMA user_version = 1000");
    database.close();
    expect(await failures()).toMatch(/store\.db has schema version 1000.*, or another directory with --data$/);
    writeFileSync(join(setup.data, "client.url"), "", { mode: 0o644 });
    expect(await failures()).toMatch(/^FAIL {2}others can read client\.url; chmod 600/);
    chmodSync(setup.data, 0o777);
    const { stdout } = await setup.laboro(["doctor"]);
    expect(stdout).toMatch(/others can write to it \(mode 0777\).*then chmod 700\)$/m);
    expect(stdout).not.toContain("firewall");
  });

  it.each([
    ["access.json", ""],
    ["tokens.json", '[{"role": "read", "token": "short"}]'],
    ["certificates.json", "{"],
  ])("names %s if a broker cannot start with it", async (name, text) => {
    const setup = await openCliBroker();
    await setup.broker.stop();
    writeFileSync(join(setup.data, name), text, { mode: 0o600 });
    const { code, stdout } = await setup.laboro(["doctor"]);
    expect([code, stdout]).toEqual([1, expect.stringMatching(`FAIL  .*${name}.*remove it.* the broker`)]);
    if (name === "access.json") expect(stdout).not.toContain("firewall");
  });

  it("counts the files that can still be made, where the disk has a number of them", () => {
    expect(checkInodes(0, 0)).toEqual([]);
    expect(checkInodes(1e6, 1e5)).toEqual([]);
    expect(checkInodes(1e6, 100)).toMatchObject([
      { state: "warn", message: "100 files more can be made there (df -i)" },
    ]);
    expect(checkInodes(1e6, 0)).toMatchObject([{ state: "FAIL", message: "0 files more can be made there (df -i)" }]);
  });

  it(`names a disk that is mounted read-only (${NO_MOUNT})`, async ({ skip }) => {
    const dir = smallDisk(2 ** 20) ?? skip();
    chmodSync(dir, 0o700);
    execFileSync("mount", ["-o", "remount,ro", dir]);
    const { stdout } = await laboro(["doctor", "--data", dir]);
    expect(stdout).toMatch(/^FAIL .* is on a disk that is mounted read-only; mount it for writing/m);
  });

  it("of nothing at all says how to begin", async () => {
    const { code, stdout } = await laboro(["doctor"], { env: { LABORO_DATA: join(scratch(), "a", "b") } });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^ok .*does not exist yet; laboro serve creates it/m);
    expect(stdout).toMatch(/^FAIL {2}no broker was named/m);
  });

  it("finds a data directory that cannot be reached", async () => {
    const file = join(scratch(), "file");
    writeFileSync(file, "");
    const { stdout } = await laboro(["doctor"], { env: { LABORO_DATA: join(file, "a", "b") } });
    expect(stdout).toContain(`FAIL  the data directory ${file}/a/b is not used: it cannot be read (ENOTDIR)`);
  });
});
