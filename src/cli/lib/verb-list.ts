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

const WORK = "Submit work:";
const INSPECT = "Inspect:";
const MANAGE = "Manage jobs:";
const WORKERS = "Workers:";
const SERVICES = "Services:";
const SETUP = "Set up:";

export const VERBS: readonly Verb[] = [
  {
    name: "run",
    group: WORK,
    summary: "run commands and show their output; exit with 0 if all succeeded",
    load: async () => (await import("../verbs/run.js")).run(),
  },
  {
    name: "submit",
    group: WORK,
    summary: "submit a job and return its number at once",
    load: async () => (await import("../verbs/submit.js")).submit(),
  },
  {
    name: "schedule",
    group: WORK,
    summary: "submit a job regularly: by cron expressions or at an interval",
    load: async () => (await import("../verbs/schedule.js")).schedule(),
  },
  {
    name: "experiments",
    group: WORK,
    summary: "run a folder of scripts at runexp runners",
    load: async () => (await import("../verbs/experiments.js")).experiments(),
  },
  {
    name: "status",
    group: INSPECT,
    summary: "list jobs and their progress, or show one job; the default verb",
    load: async () => (await import("../verbs/status.js")).status(),
  },
  {
    name: "tasks",
    group: INSPECT,
    summary: "list the tasks of a job: state, exit code, worker, duration",
    load: async () => (await import("../verbs/tasks.js")).tasks(),
  },
  {
    name: "logs",
    group: INSPECT,
    summary: "print the output of tasks, live with -f",
    load: async () => (await import("../verbs/logs.js")).logs(),
  },
  {
    name: "fetch",
    group: INSPECT,
    summary: "write the files that tasks have returned",
    load: async () => (await import("../verbs/fetch.js")).fetch(),
  },
  {
    name: "wait",
    group: INSPECT,
    summary: "wait until jobs have ended; exit with 0 if all succeeded",
    load: async () => (await import("../verbs/wait.js")).wait(),
  },
  {
    name: "explain",
    group: INSPECT,
    summary: "show why a task is not running",
    load: async () => (await import("../verbs/explain.js")).explain(),
  },
  {
    name: "limits",
    group: INSPECT,
    summary: "the limits, what is used of them and what waits for them",
    load: async () => (await import("../verbs/limit.js")).limits(),
  },
  {
    name: "edit",
    group: MANAGE,
    summary: "change the priority, limits or name of a job",
    load: async () => (await import("../verbs/edit.js")).edit(),
  },
  {
    name: "close",
    group: MANAGE,
    summary: "let an open job take no more tasks",
    load: async () => (await import("../verbs/edit.js")).close(),
  },
  {
    name: "hold",
    group: MANAGE,
    summary: "start no more tasks of a job",
    load: async () => (await import("../verbs/hold.js")).hold(),
  },
  {
    name: "release",
    group: MANAGE,
    summary: "start the tasks of a held job again",
    load: async () => (await import("../verbs/hold.js")).release(),
  },
  {
    name: "cancel",
    group: MANAGE,
    summary: "cancel jobs or tasks: stop running tasks, start no more",
    load: async () => (await import("../verbs/cancel.js")).cancel(),
  },
  {
    name: "rerun",
    group: MANAGE,
    summary: "run ended tasks again: the failed ones, or all",
    load: async () => (await import("../verbs/rerun.js")).rerun(),
  },
  {
    name: "clean",
    group: MANAGE,
    summary: "delete ended jobs and their output",
    load: async () => (await import("../verbs/clean.js")).clean(),
  },
  {
    name: "limit",
    group: MANAGE,
    summary: "set or remove a limit on running tasks and on starts, for jobs that name it",
    load: async () => (await import("../verbs/limit.js")).limit(),
  },
  {
    name: "workers",
    group: WORKERS,
    summary: "list the workers and their free slots",
    load: async () => (await import("../verbs/workers.js")).workers(),
  },
  {
    name: "ssh",
    group: WORKERS,
    summary: "start, list or stop workers on other machines over ssh",
    load: async () => (await import("../verbs/ssh.js")).ssh(),
  },
  {
    name: "drain",
    group: WORKERS,
    summary: "assign no more tasks to a worker; running tasks continue",
    load: async () => (await import("../verbs/drain.js")).drain(),
  },
  {
    name: "undrain",
    group: WORKERS,
    summary: "assign tasks to a drained worker again",
    load: async () => (await import("../verbs/drain.js")).undrain(),
  },
  {
    name: "pause",
    group: WORKERS,
    summary: "start no more tasks of a pool",
    load: async () => (await import("../verbs/pause.js")).pause(),
  },
  {
    name: "resume",
    group: WORKERS,
    summary: "start the tasks of a paused pool again",
    load: async () => (await import("../verbs/pause.js")).resume(),
  },
  {
    name: "stop",
    group: WORKERS,
    summary: "let a worker finish its running tasks, then end it",
    load: async () => (await import("../verbs/drain.js")).stop(),
  },
  {
    name: "forgive",
    group: WORKERS,
    summary: "reset the standing of a worker that failed too often",
    load: async () => (await import("../verbs/forgive.js")).forgive(),
  },
  {
    name: "alloc",
    group: WORKERS,
    summary: "let Slurm run workers while work waits for them",
    load: async () => (await import("../verbs/alloc.js")).alloc(),
  },
  {
    name: "brokers",
    group: WORKERS,
    summary: "list the brokers of a group",
    load: async () => (await import("../verbs/brokers.js")).brokers(),
  },
  {
    name: "request",
    group: SERVICES,
    summary: "call a service and print its reply",
    load: async () => (await import("../verbs/request.js")).request(),
  },
  {
    name: "services",
    group: SERVICES,
    summary: "list the services and how many workers offer them",
    load: async () => (await import("../verbs/services.js")).services(),
  },
  {
    name: "rr",
    group: SERVICES,
    summary: "run the server, a worker or a client of the round-robin queue",
    load: async () => (await import("../verbs/rr.js")).rr(),
  },
  {
    name: "scale0",
    group: SERVICES,
    summary: "run a Scale0 worker, or send a Scale0 request",
    load: async () => (await import("../verbs/scale0.js")).scale0(),
  },
  {
    name: "serve",
    group: SETUP,
    summary: "run a broker",
    load: async () => (await import("../verbs/serve.js")).serve(),
  },
  {
    name: "worker",
    group: SETUP,
    summary: "run a worker",
    load: async () => (await import("../verbs/worker.js")).worker(),
  },
  {
    name: "runner",
    group: SETUP,
    summary: "run a runexp runner, for a manager of laboro or an original one",
    load: async () => (await import("../verbs/runner.js")).runner(),
  },
  {
    name: "config",
    group: SETUP,
    summary: "show or change the configuration of the workers",
    load: async () => (await import("../verbs/config.js")).config(),
  },
  {
    name: "keys",
    group: SETUP,
    summary: "manage the CURVE keys of ZeroMQ peers",
    load: async () => (await import("../verbs/keys.js")).keys(),
  },
  {
    name: "open",
    group: SETUP,
    summary: "open the dashboard in a browser",
    load: async () => (await import("../verbs/open.js")).open(),
  },
  {
    name: "decode",
    group: INSPECT,
    summary: "decode captured messages of an old protocol",
    load: async () => (await import("../verbs/decode.js")).decode(),
  },
  {
    name: "doctor",
    group: SETUP,
    summary: "check this installation and the connection to the broker",
    load: async () => (await import("../verbs/doctor.js")).doctor(),
  },
  {
    name: "completion",
    group: SETUP,
    summary: "print a completion script for bash, zsh or fish",
    load: async () => (await import("../verbs/completion.js")).completion(),
  },
];
