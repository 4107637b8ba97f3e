/** `laboro schedule`: jobs that are submitted at points in time. */
import { Argument, type Command, Option } from "commander";
import { badInput } from "../../base/errors.js";
import { shortDuration } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import type { ScheduleInfo } from "../../client/schedules.js";
import { definedOnly } from "../../model/input.js";
import { MISSED, OVERLAPS, type ScheduleTimes, scheduleName } from "../../model/schedule.js";
import { addBrokerOptions, type BrokerChoice, openRunningBroker, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseDuration } from "../lib/option-parsers.js";
import { printJson, printLines } from "../lib/print.js";
import { groupOptions } from "../lib/submission/option-groups.js";
import { ParallelCommand } from "../lib/submission/option-hints.js";
import {
  addSubmissionOptions,
  makeSubmission,
  type ParsedSubmission,
  type SubmissionOptions,
} from "../lib/submission/options.js";
import { addParallelOptions } from "../lib/submission/parallel-options.js";
import { type Column, printList } from "../lib/terminal/table.js";

const ACTIONS = ["list", "show", "add", "edit", "pause", "resume", "run", "remove"] as const;
type Action = (typeof ACTIONS)[number];

interface Options extends SubmissionOptions, BrokerChoice {
  readonly cron?: string;
  readonly tz?: string;
  readonly every?: number;
  readonly start?: string;
  readonly end?: string;
  readonly jitter?: number;
  readonly overlap?: (typeof OVERLAPS)[number];
  readonly missed?: (typeof MISSED)[number];
  readonly paused?: boolean;
  readonly replace?: boolean;
  readonly dryRun?: boolean;
  readonly json?: boolean;
}

/** Options of the schedule itself. All others belong to the job. */
const OWN_OPTIONS = ["cron", "tz", "every", "start", "end", "jitter", "overlap", "missed", "paused"] as const;
const OTHER_OPTIONS = ["replace", "dryRun", "json", "broker", "data", "local", "verbose"];
const NAMES = {
  cron: "--cron",
  timeZone: "--tz",
  every: "--every",
  start: "--start",
  end: "--end",
  jitter: "--jitter",
};
const SHOWN = 5;

export function schedule(): Command {
  const command = new ParallelCommand("schedule")
    .description(
      "Submit a job regularly. add and edit print the next runs before they save. Put -- before the command of the job.",
    )
    .addArgument(new Argument("[action]", "what to do").choices(ACTIONS).default("list"))
    .argument("[name]", "name of the schedule: letters, digits, . _ and -")
    .argument("[words...]", "add, edit: the command of each run; after ::: the entries")
    .optionsGroup("Schedule:")
    .option("--cron <expression>", "minute, hour, day, month, weekday, and with six fields seconds first; or @daily")
    .option("--tz <zone>", "the time zone of --cron, such as Europe/Prague (default: this machine's)")
    .option(
      "--every <duration>",
      "instead of --cron: the interval, such as 10m or 1h30m; counts from --start, or from now",
      parseDuration,
    )
    .option(
      "--start <time>",
      "no run before this time: 2026-12-24, 2026-12-24T18:00, 2026-12-24T18:00+01:00; none removes it",
    )
    .option("--end <time>", "no run after this time")
    .option("--jitter <duration>", "delay each run by a random time up to this", parseDuration)
    .addOption(
      new Option(
        "--overlap <rule>",
        "while the last run is still open: start another, skip it, queue one, or replace the old one (default: allow)",
      ).choices(OVERLAPS),
    )
    .addOption(
      new Option(
        "--missed <rule>",
        "runs that no broker could start within a minute: start one for all of them, or skip them (default: once)",
      ).choices(MISSED),
    )
    .option("--paused", "add: start no run until laboro schedule resume")
    .option("--replace", "add: replace an existing schedule of this name")
    .option("--dry-run", "add, edit: print the next runs and save nothing");
  addParallelOptions(addSubmissionOptions(command.optionsGroup("Options:"))).option("--json", "print JSON");
  return addBrokerOptions(groupOptions(command)).addHelpText("after", EXAMPLES).action(perform);
}

const EXAMPLES = `
Examples:
  laboro schedule add nightly --cron '0 3 * * *' --tz Europe/Prague -- ./nightly
  laboro schedule add poll --every 10m --overlap skip --time-limit 9m -- ./poll.sh
  laboro schedule
  laboro schedule edit nightly --cron '30 2 * * *'
  laboro schedule run nightly
  laboro schedule pause nightly`;

async function perform(
  action: Action,
  name: string | undefined,
  words: readonly string[],
  options: Options,
): Promise<void> {
  const changes = action === "add" || action === "edit";
  const [stray] = changes ? [] : [...words, ...given(options, [...OWN_OPTIONS, ...jobOptions(options)])];
  if (stray !== undefined)
    throw badInput(`laboro schedule ${action} takes one name and nothing else, got ${stray}; add and edit take more`);
  if (action === "list") {
    if (name !== undefined) throw badInput(`laboro schedule list takes no name; laboro schedule show ${name} does`);
    await withBroker(options, (client) => list(client, options), openRunningBroker);
    return;
  }
  if (name === undefined) throw badInput(`which schedule? laboro schedule ${action} NAME, such as nightly`);
  scheduleName.read(name, "the name of the schedule");
  if (action === "add") {
    await add(name, words, options);
    return;
  }
  await withBroker(options, (client) => ACTS[action](client, name, words, options), openRunningBroker);
}

/** Reports mistakes before it connects to a broker. */
async function add(name: string, words: readonly string[], options: Options): Promise<void> {
  const times = timesOf(options, true);
  const lines = await checkedPreview(times);
  const job = jobOf(words, options);
  if (options.json !== true) printLines(...lines);
  if (options.dryRun === true) return;
  const ifExists = options.replace === true ? "replace" : "refuse";
  const input = { ...times, ...rulesOf(options), job, schedule: name, ifExists } as const;
  await withBroker(
    options,
    async (client) => report(await client.ask("scheduleSet", input), options, `schedule ${name} is saved`),
    openRunningBroker,
  );
}

type Act = (client: Client, name: string, words: readonly string[], options: Options) => Promise<void>;

const ACTS: Readonly<Record<Exclude<Action, "list" | "add">, Act>> = {
  edit: async (client, name, words, options) => {
    const before = await client.schedules.get(name);
    const { jitterMs, ...changed } = timesOf(options, false);
    const times = { ...timesAfter(before, changed), jitterMs: options.jitter ?? before.jitterMs };
    const lines = await checkedPreview(times, before);
    if (options.json !== true) printLines(...lines);
    if (options.dryRun === true) return;
    const [jobOption] = given(options, jobOptions(options));
    if (words.length === 0 && jobOption !== undefined && options.script === undefined && options.service === undefined)
      throw badInput(`${jobOption} is of the job: give its command, too; the job is replaced as a whole`);
    const job = words.length > 0 || jobOption !== undefined ? { job: jobOf(words, options) } : {};
    const unset = (["start", "end"] as const).filter((one) => options[one] === "none");
    const jitter = options.jitter === undefined ? {} : { jitterMs };
    const saved = await client.schedules.edit(name, { ...changed, ...jitter, ...rulesOf(options), ...job, unset });
    report(saved, options, `schedule ${name} is saved`);
  },
  show: async (client, name, _, options) => {
    const found = await client.schedules.get(name);
    if (options.json === true) printJson(found);
    else printLines(...details(found));
  },
  pause: async (client, name, _, options) =>
    report(await client.schedules.pause(name), options, `schedule ${name} is paused`),
  resume: async (client, name, _, options) => {
    const found = await client.schedules.resume(name);
    const next = found.due === undefined ? "it has ended" : `the next run is at ${timeText(found.due, found.timeZone)}`;
    report(found, options, `schedule ${name} is resumed: ${next}`);
  },
  run: async (client, name, _, options) => {
    const { id } = await client.schedules.run(name);
    if (options.json === true) printJson({ job: id });
    else printLines(String(id));
  },
  remove: async (client, name, _, options) => {
    await client.schedules.remove(name);
    if (options.json === true) printJson({});
    else printLines(`schedule ${name} is removed; the jobs of its runs stay`);
  },
};

function report(saved: ScheduleInfo, options: Options, line: string): void {
  if (options.json === true) printJson(saved);
  else printLines(line);
}

/** The times that the options give; `whole` if they are all that there is. */
function timesOf(options: Options, whole: boolean): ScheduleTimes {
  const { cron, tz, every, jitter } = options;
  const zone = tz ?? (whole && cron !== undefined ? localZone() : undefined);
  const [start, end] = [timeOf(options.start, "--start"), timeOf(options.end, "--end")];
  const times: ScheduleTimes = {
    ...definedOnly({ cron, timeZone: zone, everyMs: every, start, end }),
    jitterMs: jitter ?? 0,
  };
  return times;
}

/** The times of a schedule with these changes, as the broker will have them. */
function timesAfter(before: ScheduleInfo, changed: Omit<ScheduleTimes, "jitterMs">): Omit<ScheduleTimes, "jitterMs"> {
  const { cron, timeZone, everyMs, start, end } = before;
  const kept =
    changed.everyMs !== undefined
      ? {}
      : {
          ...(cron === undefined ? {} : { cron }),
          ...(timeZone === undefined ? {} : { timeZone }),
          ...(everyMs === undefined || changed.cron !== undefined ? {} : { everyMs }),
        };
  return { ...kept, ...(start === undefined ? {} : { start }), ...(end === undefined ? {} : { end }), ...changed };
}

const localZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

function timeOf(text: string | undefined, option: string): number | undefined {
  if (text === undefined || text === "none") return undefined;
  const [, day, time = "T00:00"] =
    /^(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?)?$/.exec(text.trim()) ?? [];
  const ms = day === undefined ? Number.NaN : Date.parse(`${day}${time.replace(" ", "T")}`);
  if (Number.isFinite(ms)) return ms;
  throw badInput(
    `${option} ${JSON.stringify(text)}: expected a time such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00`,
  );
}

function rulesOf({ overlap, missed, paused }: Options): Pick<Options, "overlap" | "missed" | "paused"> {
  return {
    ...(overlap === undefined ? {} : { overlap }),
    ...(missed === undefined ? {} : { missed }),
    ...(paused === true ? { paused } : {}),
  };
}

function jobOf(words: readonly string[], options: Options): ParsedSubmission {
  const job = makeSubmission(words, options, false);
  if (job.entries?.length === 0) throw badInput("the list of entries is empty: there is nothing to do");
  return job;
}

/** Names of the options in `among` that were given. */
const given = (options: Options, among: readonly string[]): string[] =>
  Object.entries(options)
    .filter(
      ([name, value]) => among.includes(name) && value !== undefined && !(Array.isArray(value) && value.length === 0),
    )
    .map(([name]) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`);

const jobOptions = (options: Options): string[] =>
  Object.keys(options).filter((name) => ![...OWN_OPTIONS, ...OTHER_OPTIONS].includes(name));

/** 2026-11-19 03:00:00 GMT+1 */
function timeText(ms: number, timeZone: string | undefined): string {
  const zone = timeZone ?? localZone();
  const text = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }).format(ms);
  const parts = new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "shortOffset" }).formatToParts(ms);
  return `${text} ${parts.find(({ type }) => type === "timeZoneName")?.value ?? zone}`;
}

function whenText({ cron, timeZone, everyMs }: Pick<ScheduleInfo, "cron" | "timeZone" | "everyMs">): string {
  if (everyMs !== undefined) return `every ${formatDuration(everyMs)}`;
  return `${cron} ${timeZone ?? "UTC"}`;
}

/** The next runs. Refuses wrong times. Loads the reader of cron expressions, which other actions do not need. */
async function checkedPreview(times: ScheduleTimes, before?: ScheduleInfo): Promise<string[]> {
  const { checkTimes, nextPoints } = await import("../../model/schedule-times.js");
  const now = Date.now();
  checkTimes(times, now, NAMES);
  const sameEvery = before?.everyMs !== undefined && before.everyMs === times.everyMs && before.due !== undefined;
  const points = nextPoints(times, sameEvery ? (before?.due ?? now) : now, now, SHOWN);
  return [`${whenText(times)}; the next runs:`, ...points.map((at) => `  ${pointText(at, times.timeZone, now)}`)];
}

const pointText = (at: number, timeZone: string | undefined, now: number): string =>
  `${timeText(at, timeZone)}  in ${shortDuration(at - now)}`;

const COLUMNS: readonly Column[] = [
  { title: "NAME", minWidth: 10 },
  { title: "STATE" },
  { title: "WHEN", minWidth: 12 },
  { title: "NEXT" },
  { title: "LAST", dropPriority: 1 },
  { title: "JOB", align: "right" },
  { title: "RUNS", align: "right", dropPriority: 3 },
  { title: "SKIPPED", align: "right", dropPriority: 4 },
  { title: "COMMAND", minWidth: 10, dropPriority: 2 },
];

async function list(client: Client, { json }: Options): Promise<void> {
  const found: ScheduleInfo[] = [];
  for await (const one of client.schedules.list()) found.push(one);
  const now = Date.now();
  const rows = found.map((one) => [
    one.name,
    one.state,
    whenText(one),
    one.nextAt === undefined ? "" : `in ${shortDuration(one.nextAt - now)}`,
    one.last === undefined
      ? ""
      : `${shortDuration(now - one.last.at)} ago${one.last.skipped === undefined ? "" : `, skipped`}`,
    one.lastJob === undefined ? "" : String(one.lastJob),
    String(one.runs),
    String(one.skipped),
    one.job.summary,
  ]);
  const none = "there are no schedules; laboro schedule add NAME --cron '0 3 * * *' -- COMMAND adds one";
  printList({ document: { schedules: found }, json, columns: COLUMNS, rows, none });
}

function details(one: ScheduleInfo): string[] {
  const { timeZone, last } = one;
  const now = Date.now();
  const lines: [string, string | undefined][] = [
    ["schedule", `${one.name} (${one.state})`],
    ["when", whenText(one)],
    ["start", one.start === undefined ? undefined : timeText(one.start, timeZone)],
    ["end", one.end === undefined ? undefined : timeText(one.end, timeZone)],
    ["jitter", one.jitterMs === 0 ? undefined : formatDuration(one.jitterMs)],
    ["rules", `overlap ${one.overlap}, missed ${one.missed}`],
    ["command", one.job.summary],
    ["tasks", `${one.job.count} in pool ${one.job.pool}, priority ${one.job.priority}`],
    ["runs", `${one.runs}, skipped ${one.skipped}`],
    [
      "last run",
      last === undefined
        ? undefined
        : `${timeText(last.due, timeZone)}${last.skipped === undefined ? "" : `, skipped: ${last.message ?? last.skipped}`}`,
    ],
    ["last job", one.lastJob === undefined ? undefined : String(one.lastJob)],
    ...(one.upcoming ?? []).map((at, i): [string, string] => [
      i === 0 ? "next runs" : "",
      pointText(at, timeZone, now),
    ]),
  ];
  return lines.flatMap(([title, value]) => (value === undefined ? [] : [`${title.padEnd(10)} ${value}`]));
}
