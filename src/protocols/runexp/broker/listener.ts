/** The listener for runners of runexp 1.3: they get tasks of this broker's queue, as all its other workers do. */

import { badInput } from "../../../base/errors.js";
import type {
  Listener,
  ListenerAddress,
  ListenerContext,
  ListenerFactory,
} from "../../../broker/listeners/listener.js";
import { openTcpListener } from "../../../broker/listeners/tcp.js";
import { GROUP_PATTERN } from "../messages.js";
import type { Experiments } from "./experiments.js";
import { Manager } from "./manager.js";
import { RunnerSession, SESSION_LIMITS, type SessionLimits } from "./runner-session.js";

export const openRunexpListener: ListenerFactory = (context, address) => openManager(context, address, {});

export interface ManagerOptions {
  /** A folder of experiments, to which the jobs of that name belong. */
  readonly experiments?: Experiments;
  readonly limits?: Partial<SessionLimits>;
}

/** The same listener, with more options than an operator may set. */
export async function openManager(
  context: ListenerContext,
  listenAddress: ListenerAddress,
  options: ManagerOptions,
): Promise<Listener> {
  const { pool } = context.settings;
  if (pool !== undefined && !GROUP_PATTERN.test(pool)) {
    throw badInput(`the pool "${pool}" cannot be a group of runexp: it has a blank in it`);
  }
  const manager = await Manager.open(context, options.experiments);
  const limits = { ...SESSION_LIMITS, ...options.limits };
  const unsubscribe = context.core.events.onAdded(({ kind }) => {
    if (kind === "tasks-ended" || kind === "job-ended") manager.answerOpenPetos();
  });
  const listener = await openTcpListener("runexp", context, listenAddress, (socket, address, greeted) => {
    return new RunnerSession(manager, socket, address, greeted, limits);
  }).catch((cause: unknown) => {
    unsubscribe();
    throw cause;
  });
  return {
    urls: listener.urls,
    close: () => {
      unsubscribe();
      return listener.close();
    },
  };
}
