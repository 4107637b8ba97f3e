/** `laboro status`, and `laboro` alone: the jobs, or one of them in full. */
import { Command } from "commander";
import { formatCount, pluralize } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, waitForBroker, withBroker } from "../lib/broker-connection.js";
import { parseDuration } from "../lib/duration.js";
import { ENDED_STATES, JOB_STATES, type JobFilter, stateParser } from "../lib/job-states.js";
import { printJson, printLines } from "../lib/print.js";
import { listJobs, selectJobs } from "../lib/select-jobs.js";
import { isSingleJob, parseJobSelector } from "../lib/selectors.js";
import { detectTerminal, paint, type Terminal } from "../lib/terminal/terminal.js";
import type { JobView, OperationOutput } from "../lib/views.js";
import { jobDetailLines } from "./status/job-details.js";
import { jobTable } from "./status/job-table.js";

interface Options extends BrokerChoice {
  readonly all?: boolean;
  readonly state?: JobFilter["state"];
  readonly name?: string;
  readonly pool?: string;
  readonly wait?: number;
  readonly json?: boolean;
}

/** Ended jobs that are shown beside the open ones. */
const RECENT = 5;
/** Jobs beyond these are not even counted. */
const MAX_ENDED_SCANNED = 200;

export function status(): Command {
  const command = new Command("status")
    .description(
      "Show the jobs and their progress: those that are open and the few that ended last; or with a selector one job in detail: " +
        "its progress, which tasks failed and why, and where tasks run.",
    )
    .argument("[selector]", "jobs: last, 3, 1-4,7, all")
    .option("--all", "every job, however long ago it ended")
    .option("--state <states>", `only jobs in these states: ${JOB_STATES.join(", ")}`, stateParser(JOB_STATES))
    .option("--name <name>", "only jobs of this name; * stands for any text")
    .option("--pool <name>", "only jobs of this pool")
    .option("--wait <duration>", "wait so long until the broker answers: 10s", parseDuration)
    .option("--json", "one JSON document")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro status\n  laboro status last\n  laboro status --all --state failed --name 'train*'\n  laboro status --wait 10s",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string | undefined, options: Options): Promise<void> {
  const selector = text === undefined ? undefined : parseJobSelector(text);
  if (options.wait !== undefined && options.local !== true) await waitForBroker(options, options.wait);
  await withBroker(options, async (client) => {
    if (selector === undefined) {
      await showList(client, options);
      return;
    }
    const jobs = await selectJobs(client, selector, filterOf(options));
    if (options.json === true) printJson(isSingleJob(selector) ? jobs[0] : { jobs });
    else if (isSingleJob(selector))
      for (const job of jobs) printLines(...(await jobDetailLines(client, job, detectTerminal())));
    else printLines(...jobTable(jobs, detectTerminal()));
  });
}

async function showList(client: Client, options: Options): Promise<void> {
  const [broker, { jobs, hidden, truncated }] = await Promise.all([
    client.ask("status", {}),
    jobsToShow(client, options),
  ]);
  if (options.json === true) {
    printJson({ broker, jobs, hidden });
    return;
  }
  const terminal = detectTerminal();
  printLines(...brokerLines(broker, terminal), "");
  if (jobs.length === 0)
    printLines(
      isFiltered(options) ? "no job is like that" : "there is no job yet; laboro run or laboro submit gives one",
    );
  else printLines(...jobTable(jobs, terminal));
  if (hidden === 0) return;
  const count = truncated ? `more than ${pluralize(hidden, "other job")}` : pluralize(hidden, "other job");
  printLines(
    "",
    `${count} ${hidden === 1 && !truncated ? "is" : "are"} not shown; laboro status --all shows every one`,
  );
}

interface JobListing {
  readonly jobs: readonly JobView[];
  readonly hidden: number;
  /** There are more hidden ones than were counted. */
  readonly truncated: boolean;
}

/** Open ones first, each kind newest first. */
async function jobsToShow(client: Client, options: Options): Promise<JobListing> {
  const filter = filterOf(options);
  if (options.all === true || options.state !== undefined) {
    const jobs = await listJobs(client, filter);
    return { jobs: jobs.sort((a, b) => endedRank(a) - endedRank(b)), hidden: 0, truncated: false };
  }
  const [open, ended] = await Promise.all([
    listJobs(client, { ...filter, state: ["open"] }),
    client.ask("jobs", { ...filter, state: [...ENDED_STATES], limit: MAX_ENDED_SCANNED }),
  ]);
  // Sorted by their ends: a long job that has just ended comes first.
  const recent = [...ended.jobs].sort((a, b) => (b.ended ?? 0) - (a.ended ?? 0)).slice(0, RECENT);
  return { jobs: [...open, ...recent], hidden: ended.jobs.length - recent.length, truncated: ended.next !== undefined };
}

const endedRank = ({ ended }: JobView): number => (ended === undefined ? 0 : 1);

const isFiltered = ({ state, name, pool }: Options): boolean => (state ?? name ?? pool) !== undefined;

function filterOf({ state, name, pool }: Options): JobFilter {
  return { ...(state && { state }), ...(name && { name }), ...(pool && { pool }) };
}

function brokerLines(broker: OperationOutput<"status">, terminal: Terminal): string[] {
  const { workers, slots, tasks, refusing, requests } = broker;
  const disconnected = workers.disconnected === 0 ? "" : `, ${formatCount(workers.disconnected)} disconnected`;
  const parts = [
    workers.connected === 0
      ? `no worker is connected${disconnected}`
      : `${pluralize(workers.connected, "worker")}${disconnected} with ${pluralize(slots.total, "slot")}, ${formatCount(slots.free)} free`,
    `${pluralize(tasks.running, "task")} running, ${formatCount(tasks.waiting)} waiting`,
    requests.running + requests.waiting === 0
      ? ""
      : `${pluralize(requests.running + requests.waiting, "request")} under way`,
  ];
  const lines = [parts.filter((part) => part !== "").join("; ")];
  if (refusing !== undefined)
    lines.push(paint(terminal, "red", `the broker takes nothing new: ${refusing.message} (${refusing.code})`));
  lines.push(...broker.damage.map((report) => paint(terminal, "red", `${report} (LABORO_DATA_LOST)`)));
  return lines;
}
