/** An operation: its name, required role, path in the HTTP API, input, output and action. */

import { LaboroError } from "../../base/errors.js";
import type { TracedConnections } from "../../base/traced-connections.js";
import type { ObjectSchema, ReadType, Schema, Shape } from "../../model/schema.js";
import { type RequiredRole, type Role, roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import type { Asks } from "./asks.js";

/** What an operation knows of the broker beyond its core. */
export interface BrokerInfo {
  readonly version: string;
  readonly connections: TracedConnections;
  readonly asks: Asks;
  /** Space on the disk of the data directory, in bytes; absent if it is on another machine. */
  disk?(): Promise<{ readonly free: number; readonly total: number }>;
  /** Reports of acknowledged data that is missing from the data directory. */
  damage(): Promise<readonly string[]>;
  /** A fallback closes its listeners again; absent if this broker is not a fallback. */
  stepBack?(): void;
  listeners(): readonly { readonly name: string; readonly url: string }[];
  /** A link that logs a browser in once, with this role. */
  newLoginLink(role: Role): { readonly code: string; readonly url: string; readonly expires: number };
}

export interface OperationContext {
  readonly role: Role;
  /** Aborts when the caller no longer waits. */
  readonly signal: AbortSignal;
  readonly info: BrokerInfo;
}

export type Method = "GET" | "POST" | "DELETE";

export interface Operation<In extends ObjectSchema<Shape>, Out extends Schema<object, object>> {
  readonly name: string;
  readonly role: RequiredRole;
  readonly method: Method;
  /** Below /api/v1; `{name}` is a field of the input. */
  readonly path: string;
  readonly summary: string;
  readonly input: In;
  readonly output: Out;
  /** The largest body over HTTP, in bytes; 1 MiB if absent. */
  readonly bodyLimit?: number;
  perform(core: Core, input: ReadType<In>, context: OperationContext): Promise<ReadType<Out>> | ReadType<Out>;
}

export type AnyOperation = Omit<Operation<ObjectSchema<Shape>, Schema<object, object>>, "perform"> & {
  perform(core: Core, input: never, context: OperationContext): Promise<object> | object;
};

export function authorize({ name, role: needed }: Pick<AnyOperation, "name" | "role">, role: Role): void {
  if (roleAllows(role, needed)) return;
  throw new LaboroError("LABORO_FORBIDDEN", `${name} needs the role ${needed}, this token has ${role}`);
}

export const operation = <In extends ObjectSchema<Shape>, Out extends Schema<object, object>>(
  definition: Operation<In, Out>,
): Operation<In, Out> => definition;
