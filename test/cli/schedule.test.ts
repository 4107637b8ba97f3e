import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

/** Times as they are when the test runs. */
const plain = (text: string): string =>
  text
    .replaceAll(/\d{4}-\d\d-\d\d/g, "DATE")
    .replaceAll(/in \S+$/gm, "in TIME")
    .replaceAll(/\d\d:\d\d:\d\d GMT\S*/g, "CLOCK");

describe("laboro schedule", () => {
  it("add prints the next runs, saves, and the job is run", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const { code, stdout } = await setup.laboro(
      ["schedule", "add", "tick", "--cron", "* * * * * *", "--tz", "Europe/Prague", "--", "echo", "--hello", "tick"],
      { process: true },
    );
    expect([code, plain(stdout).split("\n")]).toEqual([
      0,
      [
        "* * * * * * Europe/Prague; the next runs:",
        ...Array(5).fill("  DATE CLOCK  in TIME"),
        "schedule tick is saved",
        "",
      ],
    ]);
    await until("it has run", async () => (await setup.client.schedules.get("tick")).runs > 0);
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect(await setup.client.job(1).text(0)).toBe("--hello tick\n");
    expect((await setup.client.job(1).info()).name).toBe("tick");
  });

  it("says that -- is missing before a command with an option of its own", async () => {
    const setup = await openCliBroker();
    const add = ["schedule", "add", "tick", "--every", "1h"];
    expect(await setup.laboro([...add, "./nightly", "--full"])).toMatchObject({
      code: 2,
      stderr:
        "laboro: unknown option '--full'; if it belongs to the command, put -- before the command (LABORO_BAD_INPUT)\n",
    });
    expect((await setup.laboro([...add, "--full", "./nightly"])).stderr).not.toContain("put -- before");
  });

  it("takes the options of submit for its job", async () => {
    const setup = await openCliBroker();
    const job = ["--retries", "3", "--pool", "night", "--slots", "2", "--name", "sweep", "--time-limit", "1h"];
    await setup.laboro(["schedule", "add", "a", "--every", "1h", ...job, "--", "./run", "{}", ":::", "x", "y"]);
    expect((await setup.laboro(["schedule", "run", "a"])).stdout).toBe("1\n");
    expect(await setup.client.job(1).info()).toMatchObject({
      name: "sweep",
      pool: "night",
      count: 2,
      needs: { slots: 2 },
      limits: { retries: 3, timeLimitMs: 3_600_000 },
    });
  });

  it("list and show say when, what, and how it went", async () => {
    const setup = await openCliBroker();
    expect((await setup.laboro(["schedule"])).stdout).toContain("there are no schedules; laboro schedule add NAME");
    await setup.laboro([
      "schedule",
      "add",
      "nightly",
      "--cron",
      "0 3 * * *",
      "--tz",
      "Europe/Prague",
      "--",
      "./nightly",
    ]);
    await setup.laboro(["schedule", "add", "poll", "--every", "10m", "--overlap", "skip", "--paused", "--", "./poll"]);
    await setup.laboro(["schedule", "run", "poll"]);
    const { stdout } = await setup.laboro(["schedule", "list"]);
    expect(stdout.replaceAll(/in \S+|\S+ ago/g, "TIME").replaceAll(/ +/g, " ")).toBe(
      [
        "NAME STATE WHEN NEXT LAST JOB RUNS SKIPPED COMMAND",
        "nightly active 0 3 * * * Europe/Prague TIME 0 0 ./nightly",
        "poll paused every 10m TIME 1 1 0 ./poll",
        "",
      ].join("\n"),
    );
    const shown = (await setup.laboro(["schedule", "show", "nightly"])).stdout;
    expect(shown).toMatch(/^schedule {3}nightly \(active\)\nwhen {7}0 3 \* \* \* Europe\/Prague\n/);
    expect(shown.match(/03:00:00 GMT/g)).toHaveLength(5);
    const { schedules } = JSON.parse((await setup.laboro(["schedule", "--json"])).stdout);
    expect(schedules).toMatchObject([{ name: "nightly" }, { name: "poll", state: "paused", lastJob: 1 }]);
  });

  it("add refuses a name that is taken, --replace takes its place", async () => {
    const setup = await openCliBroker();
    const add = (...more: string[]) => setup.laboro(["schedule", "add", "a", "--every", "1h", ...more, "--", "./new"]);
    expect((await add()).code).toBe(0);
    const again = await add();
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining("LABORO_SCHEDULE_EXISTS")]);
    expect((await add("--replace")).code).toBe(0);
    expect((await setup.client.ask("schedules", {})).schedules).toHaveLength(1);
  });

  it("edit changes the times or the job, and prints the next runs first", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["schedule", "add", "a", "--every", "1h", "--end", "2199-01-01", "--", "./old"]);
    const edited = await setup.laboro([
      "schedule",
      "edit",
      "a",
      "--cron",
      "30 2 * * *",
      "--tz",
      "UTC",
      "--end",
      "none",
    ]);
    expect(edited.stdout).toMatch(/^30 2 \* \* \* UTC; the next runs:\n(.*02:30:00 GMT.*\n){5}schedule a is saved\n$/);
    expect(await setup.client.schedules.get("a")).not.toHaveProperty("end");
    await setup.laboro(["schedule", "edit", "a", "--priority", "7", "--", "./new"]);
    expect(await setup.client.schedules.get("a")).toMatchObject({
      cron: "30 2 * * *",
      job: { summary: "./new", priority: 7 },
    });
    const half = await setup.laboro(["schedule", "edit", "a", "--priority", "7"]);
    expect([half.code, half.stderr]).toEqual([
      2,
      expect.stringContaining("--priority is of the job: give its command, too"),
    ]);
    await setup.laboro(["schedule", "edit", "a", "--every", "2h", "--dry-run"]);
    expect(await setup.client.schedules.get("a")).not.toHaveProperty("everyMs");
  });

  it("submits jobs with the options of GNU parallel", async () => {
    const setup = await openCliBroker();
    const job = ["--halt", "soon,fail=50%", "--nice", "3", "-n", "2", "--timeout", "300%", "echo {2}"];
    await setup.laboro(["schedule", "add", "a", "--every", "1h", ...job, ":::", "a", "b", "c", "d"]);
    expect((await setup.laboro(["schedule", "run", "a"])).stdout).toBe("1\n");
    expect(await setup.client.job(1).info()).toMatchObject({
      count: 2,
      limits: { halt: { on: "fail", count: 1 }, timeLimitPercent: 300 },
    });
  });

  it("pause, resume and remove say what they did", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["schedule", "add", "a", "--cron", "0 3 * * *", "--tz", "UTC", "--", "./a"]);
    expect((await setup.laboro(["schedule", "pause", "a"])).stdout).toBe("schedule a is paused\n");
    expect((await setup.laboro(["schedule", "resume", "a"])).stdout).toMatch(
      /^schedule a is resumed: the next run is at \S+ 03:00:00 GMT/,
    );
    expect((await setup.laboro(["schedule", "remove", "a"])).stdout).toBe(
      "schedule a is removed; the jobs of its runs stay\n",
    );
    const gone = await setup.laboro(["schedule", "pause", "a"]);
    expect([gone.code, gone.stderr]).toEqual([
      1,
      expect.stringContaining("there is no schedule a (LABORO_NO_SUCH_SCHEDULE)"),
    ]);
  });

  it.each([
    [["--cron", "61 * * * *"], /--cron "61 \* \* \* \*": expected .*such as 0 3 \* \* \*/],
    [
      ["--cron", "0 3 * * *", "--tz", "Europe/Prag"],
      /--tz "Europe\/Prag": expected a time zone such as Europe\/Prague/,
    ],
    [["--every", "often"], /--every.*expected a duration such as/],
    [["--every", "10m", "--jitter", "10m"], /--jitter "10m": expected less than the 10m between two runs, such as 1s/],
    [["--every", "10m", "--start", "noon"], /--start "noon": expected a time such as 2026-12-24T18:00/],
    [["--every", "10m", "--end", "2020-01-01"], /--end "2\d+.*": expected a time after the first run/],
    [["--every", "10m", "--cron", "0 3 * * *"], /give either --cron, such as "0 3 \* \* \*", or --every, such as 10m/],
    [["--every", "10m", "--after", "3"], /unknown option '--after'/],
    [[], /give either --cron/],
  ])("refuses %j before it looks for a broker", async (options, message) => {
    const setup = await openCliBroker();
    const env = { LABORO_DATA: "/nowhere" };
    const { code, stderr } = await setup.laboro(["schedule", "add", "a", ...options, "--", "true"], { env });
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });

  it("refuses a bad name, no name, and what only add takes", async () => {
    const setup = await openCliBroker();
    const said = async (...args: string[]) => (await setup.laboro(["schedule", ...args])).stderr;
    expect(await said("add", "a/b", "--every", "1h", "--", "x")).toContain('such as nightly, got "a/b"');
    expect(await said("pause")).toContain("which schedule? laboro schedule pause NAME, such as nightly");
    expect(await said("pause", "a", "--cron", "0 3 * * *")).toContain("got --cron; add and edit take more");
    expect(await said("run", "a", "true")).toContain("takes one name and nothing else, got true");
  });
});
