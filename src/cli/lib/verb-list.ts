/**
 * Every verb by name, with its line in `laboro --help`. The file of a verb is loaded only when the verb is used, to
 * keep the start fast. To add a verb, add a file in verbs/ that makes its Command, and an entry here.
 */
import type { Command } from "commander";

interface Verb {
  readonly name: string;
  readonly group: string;
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

/** A file exports a function of the verb's name, which makes its Command. */
const verb = <Name extends string>(
  name: Name,
  group: string,
  summary: string,
  load: () => Promise<Readonly<Record<Name, () => Command>>>,
): Verb => ({ name, group, summary, load: async () => (await load())[name]() });

const WORK = "Submit work:";
const INSPECT = "Inspect:";
const MANAGE = "Manage jobs:";
const WORKERS = "Workers:";
const SERVICES = "Services:";
const SETUP = "Set up:";

export const VERBS: readonly Verb[] = [
  verb(
    "run",
    WORK,
    "run commands and show their output; exit with 0 if all succeeded",
    () => import("../verbs/run.js"),
  ),
  verb("submit", WORK, "submit a job and return its number at once", () => import("../verbs/submit.js")),
  verb(
    "schedule",
    WORK,
    "submit a job regularly: by cron expressions or at an interval",
    () => import("../verbs/schedule.js"),
  ),
  verb("experiments", WORK, "run a folder of scripts at runexp runners", () => import("../verbs/experiments.js")),
  verb(
    "status",
    INSPECT,
    "list jobs and their progress, or show one job; the default verb",
    () => import("../verbs/status.js"),
  ),
  verb(
    "tasks",
    INSPECT,
    "list the tasks of a job: state, exit code, worker, duration",
    () => import("../verbs/tasks.js"),
  ),
  verb("logs", INSPECT, "print the output of tasks, live with -f", () => import("../verbs/logs.js")),
  verb("fetch", INSPECT, "write the files that tasks have returned", () => import("../verbs/fetch.js")),
  verb("wait", INSPECT, "wait until jobs have ended; exit with 0 if all succeeded", () => import("../verbs/wait.js")),
  verb("explain", INSPECT, "show why a task is not running", () => import("../verbs/explain.js")),
  verb(
    "limits",
    INSPECT,
    "the limits, what is used of them and what waits for them",
    () => import("../verbs/limit.js"),
  ),
  verb("edit", MANAGE, "change the priority, limits or name of a job", () => import("../verbs/edit.js")),
  verb("close", MANAGE, "let an open job take no more tasks", () => import("../verbs/edit.js")),
  verb("hold", MANAGE, "start no more tasks of a job", () => import("../verbs/hold.js")),
  verb("release", MANAGE, "start the tasks of a held job again", () => import("../verbs/hold.js")),
  verb("cancel", MANAGE, "cancel jobs or tasks: stop running tasks, start no more", () => import("../verbs/cancel.js")),
  verb("rerun", MANAGE, "run ended tasks again: the failed ones, or all", () => import("../verbs/rerun.js")),
  verb("clean", MANAGE, "delete ended jobs and their output", () => import("../verbs/clean.js")),
  verb(
    "limit",
    MANAGE,
    "set or remove a limit on running tasks and on starts, for jobs that name it",
    () => import("../verbs/limit.js"),
  ),
  verb("workers", WORKERS, "list the workers and their free slots", () => import("../verbs/workers.js")),
  verb("ssh", WORKERS, "start, list or stop workers on other machines over ssh", () => import("../verbs/ssh.js")),
  verb("drain", WORKERS, "assign no more tasks to a worker; running tasks continue", () => import("../verbs/drain.js")),
  verb("undrain", WORKERS, "assign tasks to a drained worker again", () => import("../verbs/drain.js")),
  verb("pause", WORKERS, "start no more tasks of a pool", () => import("../verbs/pause.js")),
  verb("resume", WORKERS, "start the tasks of a paused pool again", () => import("../verbs/pause.js")),
  verb("stop", WORKERS, "let a worker finish its running tasks, then end it", () => import("../verbs/drain.js")),
  verb("forgive", WORKERS, "reset the standing of a worker that failed too often", () => import("../verbs/forgive.js")),
  verb("alloc", WORKERS, "let Slurm run workers while work waits for them", () => import("../verbs/alloc.js")),
  verb("brokers", WORKERS, "list the brokers of a group", () => import("../verbs/brokers.js")),
  verb("request", SERVICES, "call a service and print its reply", () => import("../verbs/request.js")),
  verb("services", SERVICES, "list the services and how many workers offer them", () => import("../verbs/services.js")),
  verb("rr", SERVICES, "run the server, a worker or a client of the round-robin queue", () => import("../verbs/rr.js")),
  verb("scale0", SERVICES, "run a Scale0 worker, or send a Scale0 request", () => import("../verbs/scale0.js")),
  verb("serve", SETUP, "run a broker", () => import("../verbs/serve.js")),
  verb("worker", SETUP, "run a worker", () => import("../verbs/worker.js")),
  verb(
    "runner",
    SETUP,
    "run a runexp runner, for a manager of laboro or an original one",
    () => import("../verbs/runner.js"),
  ),
  verb("config", SETUP, "show or change the configuration of the workers", () => import("../verbs/config.js")),
  verb("keys", SETUP, "manage the CURVE keys of ZeroMQ peers", () => import("../verbs/keys.js")),
  verb("open", SETUP, "open the dashboard in a browser", () => import("../verbs/open.js")),
  verb("decode", INSPECT, "decode captured messages of an old protocol", () => import("../verbs/decode.js")),
  verb("doctor", SETUP, "check this installation and the connection to the broker", () => import("../verbs/doctor.js")),
  verb("completion", SETUP, "print a completion script for bash, zsh or fish", () => import("../verbs/completion.js")),
];
