/**
 * The table of the broker's operations, by name. The link carries them as OPERATION, HTTP has them below /api/v1. The
 * types of the SDK, the OpenAPI document and the table in docs/reference/api.md are generated from it.
 */
import { badInput } from "../../base/errors.js";
import type { ReadType, Schema, WrittenType } from "../../model/schema.js";
import type { RequiredRole, Role } from "../access/tokens.js";
import type { Core } from "../core.js";
import {
  allocator,
  allocatorDryRun,
  allocatorLog,
  allocatorPause,
  allocatorRemove,
  allocatorResume,
  allocatorSet,
  allocators,
} from "./allocators.js";
import { config, configHistory, configSet, drainBroker, loginLink, poolPause, poolResume, status } from "./broker.js";
import { brokers, PEER_OPERATIONS, stepBack } from "./brokers.js";
import { append, close, edit, rerun } from "./edit.js";
import { connection, connections, events } from "./events.js";
import { clean, jobs, remove } from "./job-view.js";
import { cancel, hold, jobOperation, release, submit, wait } from "./jobs.js";
import { limitRemove, limitSet, limits } from "./limits.js";
import { type AnyOperation, authorize, type OperationContext } from "./operation.js";
import { output, returnedFiles, sendFile } from "./output.js";
import { history, overview, permissionsOperation } from "./overview.js";
import {
  schedule,
  scheduleEdit,
  schedulePause,
  scheduleRemove,
  scheduleResume,
  scheduleRun,
  scheduleSet,
  schedules,
} from "./schedules.js";
import { request, services } from "./services.js";
import { explain, task, taskMap } from "./task.js";
import { entries, running, tasks, usage } from "./tasks.js";
import { cancelled, waiting } from "./tasks-without-result.js";
import { workerPage } from "./worker-page.js";
import { drain, forgive, stop, undrain, workers } from "./workers.js";

const permissions = permissionsOperation(() => OPERATIONS_BY_NAME.values());

export const OPERATIONS = {
  status,
  submit,
  jobs,
  job: jobOperation,
  wait,
  tasks,
  running,
  waiting,
  cancelled,
  usage,
  taskMap,
  task,
  output,
  sendFile,
  returnedFiles,
  explain,
  entries,
  edit,
  append,
  close,
  hold,
  release,
  cancel,
  rerun,
  remove,
  clean,
  schedules,
  schedule,
  scheduleSet,
  scheduleEdit,
  schedulePause,
  scheduleResume,
  scheduleRun,
  scheduleRemove,
  allocators,
  allocator,
  allocatorLog,
  allocatorSet,
  allocatorPause,
  allocatorResume,
  allocatorDryRun,
  allocatorRemove,
  workers,
  workerPage,
  drain,
  undrain,
  stop,
  forgive,
  config,
  configSet,
  configHistory,
  poolPause,
  poolResume,
  limits,
  limitSet,
  limitRemove,
  drainBroker,
  brokers,
  stepBack,
  services,
  request,
  events,
  overview,
  history,
  connections,
  connection,
  permissions,
  loginLink,
} as const;

export type { EventBody } from "../events.js";

export type OperationName = keyof typeof OPERATIONS;
/** As a caller writes it. */
export type OperationInput<Name extends OperationName> = WrittenType<(typeof OPERATIONS)[Name]["input"]>;
/** As it comes over the link; in JSON, bytes are text or `{base64}`. */
export type OperationOutput<Name extends OperationName> = ReadType<(typeof OPERATIONS)[Name]["output"]>;

export const OPERATIONS_BY_NAME: ReadonlyMap<string, AnyOperation> = new Map(
  Object.entries(OPERATIONS) as [string, AnyOperation][],
);

/** Rejects with LABORO_BAD_INPUT, LABORO_FORBIDDEN, or the operation's own refusal. */
export async function perform(core: Core, name: string, input: unknown, context: OperationContext): Promise<object> {
  const found = OPERATIONS_BY_NAME.get(name);
  if (found === undefined) {
    throw badInput(`no operation ${name}; there are ${[...OPERATIONS_BY_NAME.keys()].join(", ")}`);
  }
  return found.perform(core, authorizeAndRead(found, input, context.role) as never, context);
}

/** The same for another broker of the group, which may also call the peer operations. */
export async function performForPeer(
  core: Core,
  name: string,
  input: unknown,
  context: OperationContext,
): Promise<object> {
  const found = PEER_OPERATIONS.get(name);
  return found === undefined ? perform(core, name, input, context) : found(core, input, context);
}

/** Checks the role and reads the input of an operation. */
export function authorizeAndRead<In>(
  operation: { readonly name: string; readonly role: RequiredRole; readonly input: Schema<In, unknown> },
  input: unknown,
  role: Role,
): In {
  authorize(operation, role);
  return operation.input.read(input ?? {}, "");
}
