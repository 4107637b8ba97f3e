import { commands } from "./commands.mjs";
import { durable } from "./durable.mjs";
import { manyWorkers } from "./many-workers.mjs";
import { noop } from "./noop.mjs";
import { requests } from "./requests.mjs";
import { sleeps } from "./sleeps.mjs";
import { submission } from "./submission.mjs";

export const TOPICS = [commands, sleeps, noop, requests, submission, manyWorkers, durable];
