import { commands } from "./commands.mjs";
import { delayed } from "./delayed.mjs";
import { dispatch } from "./dispatch.mjs";
import { durable } from "./durable.mjs";
import { experiments } from "./experiments.mjs";
import { group } from "./group.mjs";
import { growth } from "./growth.mjs";
import { handlers } from "./handlers.mjs";
import { connectedWorkers, manyWorkers } from "./many-workers.mjs";
import { noop } from "./noop.mjs";
import { requests } from "./requests.mjs";
import { roundRobin } from "./round-robin.mjs";
import { schedules } from "./schedules.mjs";
import { sleeps } from "./sleeps.mjs";
import { smallJobs } from "./small-jobs.mjs";
import { submission } from "./submission.mjs";
import { typed } from "./typed.mjs";
import { zeromq } from "./zeromq.mjs";

export const TOPICS = [
  // First: what others leave behind, when it is removed, makes new files slow for minutes.
  experiments,
  typed,
  commands,
  sleeps,
  noop,
  requests,
  roundRobin,
  zeromq,
  submission,
  manyWorkers,
  connectedWorkers,
  dispatch,
  durable,
  smallJobs,
  delayed,
  handlers,
  schedules,
  group,
  growth,
];
