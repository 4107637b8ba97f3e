/**
 * What can be asked of the broker itself, by name: one table for every door. The link carries these as ASK, HTTP has them below /api/v1,
 * and the types of the SDK, the OpenAPI document and the table in docs/reference/api.md are made from it.
 */
import { LaboroError } from "../../base/errors.js";
import type { ReadType, Schema, WrittenType } from "../../model/schema.js";
import { roleAllows, type RequiredRole, type Role } from "../access/roles.js";
import type { Core } from "../core.js";
import { brokers, stepBack } from "./brokers.js";
import { config, configHistory, configSet, drainBroker } from "./config.js";
import { connection, connections } from "./connections.js";
import { events } from "./events.js";
import { history } from "./history.js";
import { clean, jobs, remove } from "./job-list.js";
import { cancel, hold, jobOperation, release, submit, wait } from "./jobs.js";
import type { AnyOperation, OperationContext } from "./operation.js";
import { output } from "./output.js";
import { permissionsOperation, overview } from "./overview.js";
import { PEER_OPERATIONS } from "./peer-operations.js";
import { rerun } from "./rerun.js";
import { request, services } from "./services.js";
import { loginLink, status } from "./status.js";
import { taskMap } from "./task-map.js";
import { entries, explain, running, task, tasks } from "./tasks.js";
import { workerPage } from "./worker-page.js";
import { drain, forgive, stop, workers } from "./workers.js";

const permissions = permissionsOperation(() => OPERATIONS_BY_NAME.values());

export const OPERATIONS = {
  status,
  submit,
  jobs,
  job: jobOperation,
  wait,
  tasks,
  running,
  taskMap,
  task,
  output,
  explain,
  entries,
  hold,
  release,
  cancel,
  rerun,
  remove,
  clean,
  workers,
  workerPage,
  drain,
  stop,
  forgive,
  config,
  configSet,
  configHistory,
  drainBroker,
  brokers,
  stepBack,
  services,
  request,
  events,
  overview,
  history,
  conversations: connections,
  conversation: connection,
  access: permissions,
  entry: loginLink,
} as const;

export type OperationName = keyof typeof OPERATIONS;
/** What a caller writes. */
export type OperationInput<Name extends OperationName> = WrittenType<(typeof OPERATIONS)[Name]["input"]>;
/** What comes back over the link; in JSON, bytes are text or `{base64}`. */
export type OperationOutput<Name extends OperationName> = ReadType<(typeof OPERATIONS)[Name]["output"]>;

export const OPERATIONS_BY_NAME: ReadonlyMap<string, AnyOperation> = new Map(Object.entries(OPERATIONS) as [string, AnyOperation][]);

/** Rejects with LABORO_BAD_INPUT, LABORO_FORBIDDEN, or what the operation itself refuses with. */
export async function perform(core: Core, name: string, input: unknown, context: OperationContext): Promise<object> {
  const found = OPERATIONS_BY_NAME.get(name);
  if (found === undefined) {
    throw new LaboroError("LABORO_BAD_INPUT", `no operation ${name}; there are ${[...OPERATIONS_BY_NAME.keys()].join(", ")}`);
  }
  return found.perform(core, authorizeAndRead(found, input, context.role) as never, context);
}

/** The same for another broker of the group, which may also ask what is here. */
export async function performForPeer(core: Core, name: string, input: unknown, context: OperationContext): Promise<object> {
  const found = PEER_OPERATIONS.get(name);
  return found === undefined ? perform(core, name, input, context) : found(core, input, context);
}

/** What was asked of an operation, for who may ask it. */
export function authorizeAndRead<In>(
  asked: { readonly name: string; readonly role: RequiredRole; readonly input: Schema<In, unknown> },
  input: unknown,
  role: Role,
): In {
  if (!roleAllows(role, asked.role)) {
    throw new LaboroError("LABORO_FORBIDDEN", `${asked.name} needs the role ${asked.role}, this token has ${role}`);
  }
  return asked.input.read(input ?? {}, "");
}
