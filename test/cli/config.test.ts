import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type CliBroker, openCliBroker } from "./support/cli.js";

const settingsOf = async (setup: CliBroker, ...more: string[]): Promise<unknown> =>
  JSON.parse((await setup.laboro(["config", "show", ...more])).stdout);

describe("laboro config", () => {
  it("begins with nothing, and numbers each change", async () => {
    const setup = await openCliBroker();
    expect(await setup.laboro(["config"])).toEqual({ code: 0, stdout: "{}\n", stderr: "" });
    expect((await setup.laboro(["config", "history"])).stdout).toContain("the config is empty");
    const set = await setup.laboro([
      "config",
      "set",
      "heartbeat_interval=5000",
      "environment.OMP_NUM_THREADS=1",
      "note=two words",
    ]);
    expect(set).toEqual({ code: 0, stdout: "config version 1\n", stderr: "" });
    expect((await setup.laboro(["config", "set", "workers.node17.slots=4", "--unset", "note"])).stdout).toBe(
      "config version 2\n",
    );
    expect(await settingsOf(setup)).toEqual({
      heartbeat_interval: 5000,
      environment: { OMP_NUM_THREADS: 1 },
      workers: { node17: { slots: 4 } },
    });
    expect(await settingsOf(setup, "--at", "1")).toEqual({
      heartbeat_interval: 5000,
      environment: { OMP_NUM_THREADS: 1 },
      note: "two words",
    });
    const { stdout } = await setup.laboro(["config", "history"]);
    expect(stdout.replaceAll(/\S+ ago/g, "TIME").replaceAll(/ +/g, " ")).toBe(
      " VERSION CHANGED DIFFERS IN\n 2 TIME note, workers\n 1 TIME heartbeat_interval, environment, note\n".replace(
        /^ /,
        "",
      ),
    );
    expect(JSON.parse((await setup.laboro(["config", "--json"])).stdout)).toMatchObject({ version: 2, settings: {} });
  });

  it("is written in three formats, and read from JSON", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["config", "set", 'tags=["big"]', "motd=it's #1", 'nested={"a":[[1,"1"],null,true,""]}']);
    const before = await settingsOf(setup);
    expect((await setup.laboro(["config", "show", "--format", "zfl"])).stdout).toContain(
      "# a list of one\ntags = big\n",
    );
    expect((await setup.laboro(["config", "show", "--format", "xml"])).stdout).toContain(
      '<tags list="true">big</tags>',
    );
    const { stdout } = await setup.laboro(["config", "show"]);
    const file = join(setup.dir, "workers.json");
    writeFileSync(file, stdout);
    await setup.laboro(["config", "set", "more=1"]);
    expect((await setup.laboro(["config", "set", "--file", file])).code).toBe(0);
    expect(await settingsOf(setup)).toEqual(before);
    const piped = await setup.laboro(["config", "set", "--file", "-"], { process: true, input: '{"slots":3}' });
    expect(piped.stdout).toBe("config version 4\n");
    expect(await settingsOf(setup)).toEqual({ slots: 3 });
    writeFileSync(file, "slots = 3\n");
    const refused = await setup.laboro(["config", "set", "--file", file]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining("config: JSON: ")]);
    expect((await setup.laboro(["config", "set", "--file", file, "--format", "zfl"])).code).toBe(2);
  });

  it("keeps the last fifty versions", async () => {
    const setup = await openCliBroker();
    for (let i = 1; i <= 55; i++) await setup.client.ask("configSet", { settings: { round: i } });
    const { versions } = await setup.client.ask("configHistory", {});
    expect(versions.map(({ version }) => version)).toEqual(Array.from({ length: 50 }, (_, i) => 55 - i));
    expect(await setup.broker.core.store.keyValues("config")).toHaveLength(50);
    const gone = await setup.laboro(["config", "show", "--at", "5"]);
    expect([gone.code, gone.stderr]).toEqual([2, "laboro: version: 6 to 55 are kept, not 5 (LABORO_BAD_INPUT)\n"]);
  });

  it("does not undo what another has set meanwhile", async () => {
    const setup = await openCliBroker();
    await setup.client.ask("configSet", { settings: { a: 1 } });
    await expect(setup.client.ask("configSet", { settings: { b: 1 }, expectedVersion: 0 })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
      message: "the config is at version 1 now, not at 0",
    });
    const all = await Promise.all(
      Array.from({ length: 8 }, (_, i) => setup.client.ask("configSet", { settings: { i } })),
    );
    expect(new Set(all.map(({ version }) => version)).size).toBeGreaterThan(1);
    expect((await setup.client.ask("config", {})).version).toBe(9);
  });

  it("refuses settings that cannot be what they say", async () => {
    const setup = await openCliBroker();
    const said = [];
    for (const words of [
      ["slots=0"],
      ["tags=5"],
      ["environment.A-B=1"],
      ["workers.node17=4"],
      ["pools.gpu.heartbeat_interval=soon"],
      ['brokers=[{"url":"http://x"}]'],
      ["nothing"],
      ["=1"],
      ["a..b=1"],
      [],
      ["--unset", "what"],
      ["--file", "/nonexistent.json"],
      ["--file", "/dev/null"],
    ]) {
      said.push(await setup.laboro(["config", "set", ...words]));
    }
    said.push(await setup.laboro(["config", "show", "a=1"]), await setup.laboro(["config", "sho"]));
    expect(new Set(said.map(({ code }) => code))).toEqual(new Set([2]));
    expect(said.map(({ stderr }) => stderr).join("")).toMatchInlineSnapshot(`
      "laboro: config: slots: expected a whole number from 1 to 100000, got 0 (LABORO_BAD_INPUT)
      laboro: config: tags[0]: expected text of 1 to 1024 characters without NUL, got 5 (LABORO_BAD_INPUT)
      laboro: config: environment: expected names of variables, got "A-B" (LABORO_BAD_INPUT)
      laboro: config: workers.node17: expected settings (LABORO_BAD_INPUT)
      laboro: pools.gpu.heartbeat_interval: expected a whole number from 50 to 3600000, got "soon" (LABORO_BAD_INPUT)
      laboro: config: brokers[0].identity: expected text of 1 to 1024 characters without NUL, got undefined (LABORO_BAD_INPUT)
      laboro: expected NAME=VALUE, got nothing (LABORO_BAD_INPUT)
      laboro: expected NAME=VALUE, got =1 (LABORO_BAD_INPUT)
      laboro: a..b is not a valid name: a part between dots is empty (LABORO_BAD_INPUT)
      laboro: nothing to set: give NAME=VALUE, --unset NAME or --file FILE (LABORO_BAD_INPUT)
      laboro: --unset: what is not set (LABORO_BAD_INPUT)
      laboro: /nonexistent.json: ENOENT: no such file or directory, open '/nonexistent.json' (LABORO_BAD_INPUT)
      laboro: config: JSON: Unexpected end of JSON input (LABORO_BAD_INPUT)
      laboro: laboro config show changes nothing; use laboro config set (LABORO_BAD_INPUT)
      laboro: expected one of show, set, history, got sho (LABORO_BAD_INPUT)
      "
    `);
    expect((await setup.client.ask("config", {})).version).toBe(0);
  });
});
