/** The manager's door: runners of runexp 1.3 come in here and take tasks of this broker's queue, beside all its other workers. */

import { LaboroError } from "../../../base/errors.js";
import type { Door, DoorContext, DoorPlace, OpenDoor } from "../../../broker/listeners/door.js";
import { openTcpDoor } from "../../../broker/listeners/tcp.js";
import { GROUP } from "../messages.js";
import type { Experiments } from "./experiments.js";
import { Manager } from "./manager.js";
import { SESSION_LIMITS, Session, type SessionLimits } from "./session.js";

export const openRunexpDoor: OpenDoor = (context, place) => openManager(context, place, {});

export interface ManagerOptions {
  /** A folder of experiments, to which the jobs of that name belong. */
  readonly experiments?: Experiments;
  readonly limits?: Partial<SessionLimits>;
}

/** The same door, with more than an operator may set. */
export async function openManager(context: DoorContext, place: DoorPlace, options: ManagerOptions): Promise<Door> {
  const { pool } = context.settings;
  if (pool !== undefined && !GROUP.test(pool)) {
    throw new LaboroError("LABORO_BAD_INPUT", `the pool "${pool}" cannot be a group of runexp: it has a blank in it`);
  }
  const manager = await Manager.open(context, options.experiments);
  const limits = { ...SESSION_LIMITS, ...options.limits };
  const unheard = context.core.events.onAdded(({ kind }) => {
    if (kind === "tasks-ended" || kind === "job-ended") manager.lookAgain();
  });
  const door = await openTcpDoor("runexp", context, place, (socket, address) => {
    return new Session(manager, socket, address, limits);
  }).catch((cause: unknown) => {
    unheard();
    throw cause;
  });
  return {
    urls: door.urls,
    close: () => {
      unheard();
      return door.close();
    },
  };
}
