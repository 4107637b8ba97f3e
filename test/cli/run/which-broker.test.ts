import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { openPlace, type Place } from "./place.js";

/** A broker for all of the user's directories, as `laboro serve` starts it; and one job at it. */
async function serve(place: Place): Promise<{ stop(): Promise<void> }> {
  const { child, said, output } = place.begin(["serve", "--listen", "127.0.0.1:0"]);
  await until("it listens", () => output().includes("listening on"));
  return {
    stop: async () => {
      child.kill("SIGTERM");
      await said;
    },
  };
}

async function jobsOf(place: Place, ...words: readonly string[]): Promise<string[]> {
  const { stdout } = await place.laboro("status", "--all", "--json", ...words);
  return (JSON.parse(stdout) as { jobs: { name: string }[] }).jobs.map(({ name }) => name);
}

const HERE = ["--name", "here", "echo out {}; exit {}", ":::", "0", "1"];

/** What verbs do with the data of HERE. */
async function allVerbs(place: Place, ...local: readonly string[]): Promise<void> {
  expect(await jobsOf(place, ...local)).toEqual(["here"]);
  expect((await place.laboro("logs", "last.1", ...local)).stdout).toBe("out 0\n");
  expect((await place.laboro("explain", "last.2", ...local)).stdout).toContain("exit code 1");
  const again = await place.laboro("rerun", "last", "--failed", ...local);
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("exit code 1") });
  expect(await place.laboro("clean", "1", ...local)).toMatchObject({ code: 0, stdout: "job 1 is forgotten\n" });
  expect(await jobsOf(place, ...local)).toEqual([]);
}

/** A batch in the directory, then a broker for the user with an ended job. */
async function bothBrokers(place: Place): Promise<{ stop(): Promise<void> }> {
  await place.run(...HERE);
  const broker = await serve(place);
  await place.laboro("submit", "--name", "there", "--hold", "true");
  await place.laboro("cancel", "last");
  return broker;
}

describe("with a broker for the user and a ./.laboro", () => {
  it("a verb says on a terminal which one it speaks to, and --local means the other", async () => {
    const place = openPlace();
    await bothBrokers(place);
    const said = await place.begin(["status"], true).said;
    expect(said.stdout).toMatch(
      /laboro: using the broker at http:\/\/127\.0\.0\.1:\d+ \(\S+access\.json\); --local uses \.\/\.laboro/,
    );
    expect((await place.laboro("status")).stderr).toBe("");
    expect(await jobsOf(place)).toEqual(["there"]);
    await allVerbs(place, "--local");
    expect(await jobsOf(place)).toEqual(["there"]);
  });

  it("--data .laboro means the data of the directory, too", async () => {
    const place = openPlace();
    await place.run(...HERE);
    await allVerbs(place, "--data", ".laboro");
  });

  it("clean asks on a terminal, names the broker, and removes nothing without a yes", async () => {
    const place = openPlace();
    await bothBrokers(place);
    const asked = place.begin(["clean", "all"], true);
    await until("it asks", () => /forget all jobs .* the broker at http\S+ .*\? \[y\/N\]/.test(asked.output()));
    asked.child.stdin?.write("\n");
    await asked.said;
    expect(await jobsOf(place)).toEqual(["there"]);
    for (const words of [["all"], [], ["last"], ["--older-than", "0s"]]) {
      expect(await place.laboro("clean", ...words)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining("--yes"),
      });
    }
    expect(await jobsOf(place)).toEqual(["there"]);
    expect(await place.laboro("clean", "all", "--local", "--yes")).toMatchObject({
      code: 0,
      stdout: "job 1 is forgotten\n",
    });
    expect([await jobsOf(place), await jobsOf(place, "--local")]).toEqual([["there"], []]);
    const confirmed = place.begin(["clean", "all"], true);
    await until("it asks", () => confirmed.output().includes("[y/N]"));
    confirmed.child.stdin?.write("y\n");
    await confirmed.said;
    expect(await jobsOf(place)).toEqual([]);
  });
});

describe("with a broker for the user that is down", () => {
  it("run does nothing on this machine unless it is told to", async () => {
    const place = openPlace();
    await (await bothBrokers(place)).stop();
    const refused = await place.run("echo ran >> ran");
    expect(refused).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/no broker answers at .*laboro run --local/),
    });
    expect(place.lines("ran")).toEqual([]);
    expect(await place.run("--local", "echo ran >> ran")).toMatchObject({ code: 0 });
    expect(place.lines("ran")).toEqual(["ran"]);
  });

  it("no verb takes ./.laboro for it", async () => {
    const place = openPlace();
    await (await bothBrokers(place)).stop();
    for (const words of [["status"], ["rerun", "1"], ["clean", "1"]]) {
      expect(await place.laboro(...words)).toMatchObject({
        code: 3,
        stderr: expect.stringContaining("--local uses ./.laboro"),
      });
    }
    expect(await jobsOf(place, "--local")).toEqual(["here"]);
  });
});

describe("with no broker", () => {
  it("submit refuses a job that nobody would do, also where runs have left data, and says what to do", async () => {
    const place = openPlace();
    await place.run("--name", "here", "true");
    for (const words of [["true"], ["--local", "true"], ["--data", ".laboro", "true"]]) {
      const { code, stdout, stderr } = await place.laboro("submit", ...words);
      expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
      expect(stderr).toMatch(/laboro run .*laboro serve/);
    }
    expect(await jobsOf(place)).toEqual(["here"]);
  });

  it("open shows what runs have left until it is interrupted, and runs go on meanwhile", async () => {
    const place = openPlace();
    await place.run("true");
    const { child, said, output } = place.begin(["open", "--print"]);
    await until("it serves", () => output().includes("until Ctrl-C"));
    const [url = ""] = /http\S+/.exec(output()) ?? [];
    const [base, code] = url.split("/#login=");
    const session = await fetch(`${base}/login`, { method: "POST", headers: { authorization: `Bearer ${code}` } });
    expect(session.status).toBe(200);
    expect(await place.run("echo ran")).toMatchObject({ code: 0, stdout: "ran\n" });
    child.kill("SIGINT");
    expect(await said).toMatchObject({ code: 0 });
  });

  it("doctor finds nothing wrong", async () => {
    const place = openPlace();
    const { code, stdout } = await place.laboro("doctor");
    expect(code).toBe(0);
    expect(stdout).toContain("no broker is configured: laboro run brings its own");
  });
});
