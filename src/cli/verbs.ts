/**
 * Every verb by name, with the line that `laboro --help` shows. A verb's own file is loaded only when it is asked for, so that none
 * pays for the others at the start. To add one: a file in this folder that makes its Command, and a line here.
 */
import type { Command } from "commander";

export interface Verb {
  readonly name: string;
  readonly group: string;
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

const WORK = "Give work:";
const LOOK = "Look:";
const CHANGE = "Change:";
const WORKERS = "Workers:";
const SERVICES = "Services:";
const SETUP = "Set up:";

export const VERBS: readonly Verb[] = [
  {
    name: "run",
    group: WORK,
    summary: "run commands, show their output, wait, exit truthfully",
    load: async () => (await import("./run.js")).run(),
  },
  {
    name: "submit",
    group: WORK,
    summary: "give a job and return its number at once",
    load: async () => (await import("./submit.js")).submit(),
  },
  {
    name: "experiments",
    group: WORK,
    summary: "run a folder of scripts at runners of runexp",
    load: async () => (await import("./experiments.js")).experiments(),
  },
  {
    name: "status",
    group: LOOK,
    summary: "jobs and how far they are, or one job in full; laboro alone does this",
    load: async () => (await import("./status.js")).status(),
  },
  {
    name: "logs",
    group: LOOK,
    summary: "the output of tasks, live with -f",
    load: async () => (await import("./logs.js")).logs(),
  },
  {
    name: "wait",
    group: LOOK,
    summary: "wait until jobs have ended; exits 0 if all succeeded",
    load: async () => (await import("./wait.js")).wait(),
  },
  {
    name: "explain",
    group: LOOK,
    summary: "why a task is not running",
    load: async () => (await import("./explain.js")).explain(),
  },
  {
    name: "hold",
    group: CHANGE,
    summary: "hand out nothing more of a job",
    load: async () => (await import("./hold.js")).hold(),
  },
  {
    name: "release",
    group: CHANGE,
    summary: "hand out a held job's tasks again",
    load: async () => (await import("./release.js")).release(),
  },
  {
    name: "cancel",
    group: CHANGE,
    summary: "stop what runs of a job, and start nothing more of it",
    load: async () => (await import("./cancel.js")).cancel(),
  },
  {
    name: "rerun",
    group: CHANGE,
    summary: "run finished tasks again: those that failed, or all",
    load: async () => (await import("./rerun.js")).rerun(),
  },
  {
    name: "clean",
    group: CHANGE,
    summary: "forget jobs that have ended, with their output",
    load: async () => (await import("./clean.js")).clean(),
  },
  {
    name: "workers",
    group: WORKERS,
    summary: "who works, and how much room they have",
    load: async () => (await import("./workers.js")).workers(),
  },
  {
    name: "drain",
    group: WORKERS,
    summary: "give a worker nothing new; what it runs goes on",
    load: async () => (await import("./drain.js")).drain(),
  },
  {
    name: "stop",
    group: WORKERS,
    summary: "let a worker end what it runs, and go",
    load: async () => (await import("./stop.js")).stop(),
  },
  {
    name: "forgive",
    group: WORKERS,
    summary: "let a worker that failed too often begin anew",
    load: async () => (await import("./forgive.js")).forgive(),
  },
  {
    name: "brokers",
    group: WORKERS,
    summary: "the brokers of a group, and what each has",
    load: async () => (await import("./brokers.js")).brokers(),
  },
  {
    name: "request",
    group: SERVICES,
    summary: "ask a service and print its answer",
    load: async () => (await import("./request.js")).request(),
  },
  {
    name: "services",
    group: SERVICES,
    summary: "which services there are, and who offers them",
    load: async () => (await import("./services.js")).services(),
  },
  {
    name: "rr",
    group: SERVICES,
    summary: "the round-robin queue's server, worker and client, with their consoles",
    load: async () => (await import("./rr.js")).rr(),
  },
  {
    name: "scale0",
    group: SERVICES,
    summary: "a worker and a client that speak Scale0",
    load: async () => (await import("./scale0.js")).scale0(),
  },
  {
    name: "serve",
    group: SETUP,
    summary: "run a broker",
    load: async () => (await import("./serve.js")).serve(),
  },
  {
    name: "worker",
    group: SETUP,
    summary: "run a worker",
    load: async () => (await import("./worker.js")).worker(),
  },
  {
    name: "runner",
    group: SETUP,
    summary: "run a runner of runexp, for a manager of ours or an original one",
    load: async () => (await import("./runner.js")).runner(),
  },
  {
    name: "config",
    group: SETUP,
    summary: "what workers are told, in numbered versions",
    load: async () => (await import("./config.js")).config(),
  },
  {
    name: "keys",
    group: SETUP,
    summary: "who may come in through ZeroMQ doors with CURVE",
    load: async () => (await import("./keys.js")).keys(),
  },
  {
    name: "open",
    group: SETUP,
    summary: "the dashboard, in a browser",
    load: async () => (await import("./open.js")).open(),
  },
  {
    name: "decode",
    group: LOOK,
    summary: "bytes of an old protocol in, named messages out",
    load: async () => (await import("./decode.js")).decode(),
  },
  {
    name: "doctor",
    group: SETUP,
    summary: "check this installation and the way to the broker",
    load: async () => (await import("./doctor.js")).doctor(),
  },
  {
    name: "completion",
    group: SETUP,
    summary: "a script that completes verbs, options, jobs and workers",
    load: async () => (await import("./completion.js")).completion(),
  },
];
