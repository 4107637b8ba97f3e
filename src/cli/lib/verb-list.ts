/**
 * Every verb by name, with the line that `laboro --help` shows. The file of a verb is loaded only when the verb is used, which keeps
 * the start fast. To add a verb: a file in verbs/ that makes its Command, and an entry here.
 */
import type { Command } from "commander";

export interface Verb {
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
    summary: "run commands, show their output, wait, exit with 0 if all succeeded",
    load: async () => (await import("../verbs/run.js")).run(),
  },
  {
    name: "submit",
    group: WORK,
    summary: "submit a job and return its number at once",
    load: async () => (await import("../verbs/submit.js")).submit(),
  },
  {
    name: "experiments",
    group: WORK,
    summary: "run a folder of scripts at runners of runexp",
    load: async () => (await import("../verbs/experiments.js")).experiments(),
  },
  {
    name: "status",
    group: INSPECT,
    summary: "jobs and their progress, or one job in detail; laboro alone does this",
    load: async () => (await import("../verbs/status.js")).status(),
  },
  {
    name: "logs",
    group: INSPECT,
    summary: "the output of tasks, live with -f",
    load: async () => (await import("../verbs/logs.js")).logs(),
  },
  {
    name: "wait",
    group: INSPECT,
    summary: "wait until jobs have ended; exits 0 if all succeeded",
    load: async () => (await import("../verbs/wait.js")).wait(),
  },
  {
    name: "explain",
    group: INSPECT,
    summary: "why a task is not running",
    load: async () => (await import("../verbs/explain.js")).explain(),
  },
  {
    name: "hold",
    group: MANAGE,
    summary: "hand out nothing more of a job",
    load: async () => (await import("../verbs/hold.js")).hold(),
  },
  {
    name: "release",
    group: MANAGE,
    summary: "hand out a held job's tasks again",
    load: async () => (await import("../verbs/release.js")).release(),
  },
  {
    name: "cancel",
    group: MANAGE,
    summary: "stop what runs of a job, and start nothing more of it",
    load: async () => (await import("../verbs/cancel.js")).cancel(),
  },
  {
    name: "rerun",
    group: MANAGE,
    summary: "run finished tasks again: those that failed, or all",
    load: async () => (await import("../verbs/rerun.js")).rerun(),
  },
  {
    name: "clean",
    group: MANAGE,
    summary: "forget jobs that have ended, with their output",
    load: async () => (await import("../verbs/clean.js")).clean(),
  },
  {
    name: "workers",
    group: WORKERS,
    summary: "the workers and their free slots",
    load: async () => (await import("../verbs/workers.js")).workers(),
  },
  {
    name: "drain",
    group: WORKERS,
    summary: "give a worker nothing new; what it runs goes on",
    load: async () => (await import("../verbs/drain.js")).drain(),
  },
  {
    name: "stop",
    group: WORKERS,
    summary: "let a worker end what it runs, and go",
    load: async () => (await import("../verbs/stop.js")).stop(),
  },
  {
    name: "forgive",
    group: WORKERS,
    summary: "reset the standing of a worker that failed too often",
    load: async () => (await import("../verbs/forgive.js")).forgive(),
  },
  {
    name: "brokers",
    group: WORKERS,
    summary: "the brokers of a group, and what each has",
    load: async () => (await import("../verbs/brokers.js")).brokers(),
  },
  {
    name: "request",
    group: SERVICES,
    summary: "ask a service and print its answer",
    load: async () => (await import("../verbs/request.js")).request(),
  },
  {
    name: "services",
    group: SERVICES,
    summary: "the services, and how many workers offer them",
    load: async () => (await import("../verbs/services.js")).services(),
  },
  {
    name: "rr",
    group: SERVICES,
    summary: "the round-robin queue's server, worker and client, with their consoles",
    load: async () => (await import("../verbs/rr.js")).rr(),
  },
  {
    name: "scale0",
    group: SERVICES,
    summary: "a worker and a client that speak Scale0",
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
    summary: "run a runner of runexp, for a manager of laboro or an original one",
    load: async () => (await import("../verbs/runner.js")).runner(),
  },
  {
    name: "config",
    group: SETUP,
    summary: "the configuration of the workers, in numbered versions",
    load: async () => (await import("../verbs/config.js")).config(),
  },
  {
    name: "keys",
    group: SETUP,
    summary: "which peers may connect to ZeroMQ listeners with CURVE",
    load: async () => (await import("../verbs/keys.js")).keys(),
  },
  {
    name: "open",
    group: SETUP,
    summary: "the dashboard, in a browser",
    load: async () => (await import("../verbs/open.js")).open(),
  },
  {
    name: "decode",
    group: INSPECT,
    summary: "bytes of an old protocol in, named messages out",
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
    summary: "a script that completes verbs, options, jobs and workers",
    load: async () => (await import("../verbs/completion.js")).completion(),
  },
];
