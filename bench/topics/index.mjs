import { commands } from "./commands.mjs";
import { dispatch } from "./dispatch.mjs";
import { durable } from "./durable.mjs";
import { experiments } from "./experiments.mjs";
import { group } from "./group.mjs";
import { groupGrowth } from "./group-growth.mjs";
import { manyWorkers } from "./many-workers.mjs";
import { noop } from "./noop.mjs";
import { requests } from "./requests.mjs";
import { roundRobin } from "./round-robin.mjs";
import { sleeps } from "./sleeps.mjs";
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
  dispatch,
  durable,
  group,
  groupGrowth,
];
