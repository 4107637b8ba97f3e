/** What a worker and its handler threads send each other. A thread has one call at a time. */
import type { ErrorDetails } from "../../model/handler-errors.js";
import type { CallInfo, ResultsPage } from "../services.js";

export interface ThreadData {
  /** The URL of the module with the handlers. */
  readonly module: string;
  /** One Int32: how many lines and progress values of the thread the worker has not read yet. */
  readonly unread: SharedArrayBuffer;
}

/** With so many, a thread waits until the worker has read half of them. Without that, a handler that writes without end would stop the heartbeat. */
export const MAX_UNREAD = 512;

export type ToThread =
  | {
      readonly type: "call";
      readonly id: number;
      readonly service: string;
      readonly body: Uint8Array;
      readonly info: CallInfo;
    }
  | { readonly type: "abort"; readonly id: number }
  | { readonly type: "page"; readonly query: number; readonly page: ResultsPage | { readonly error: ErrorDetails } }
  | { readonly type: "close" };

export type FromThread =
  /** The module is loaded: the tasks that it has handlers for. */
  | { readonly type: "ready"; readonly services: readonly string[] }
  | { readonly type: "reply"; readonly id: number; readonly body: Uint8Array; readonly error?: ErrorDetails }
  | { readonly type: "progress"; readonly id: number; readonly value: string }
  | { readonly type: "log"; readonly id: number; readonly line: string }
  | {
      readonly type: "results";
      readonly id: number;
      readonly query: number;
      readonly job: number;
      readonly from: number;
      readonly limit?: 1 | undefined;
    };

/** Bytes in a buffer of their own. A message copies the whole buffer behind a view: a frame with a hundred bodies, for example. */
export const ownBytes = (bytes: Uint8Array): Uint8Array =>
  bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
