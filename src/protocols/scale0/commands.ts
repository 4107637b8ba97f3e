/** The commands of Scale0, their parameters, and the codes with which a broker disconnects. */
import { LaboroError } from "../../base/errors.js";
import * as input from "../../model/input.js";
import { type ConfigType, configTypeOf } from "./config-formats.js";

export const DEFAULT_HEARTBEAT_MS = 2_000;

export const COMMANDS = [
  "CONNECT",
  "CONFIG",
  "PING",
  "PONG",
  "WORKREQUEST",
  "WORKREPLY",
  "TASK",
  "TASKREPLY",
  "NEEDBROKER",
  "CHANGEBROKER",
  "DISCONNECTERROR",
  "FORCENEGOTIATE",
] as const;
export type Command = (typeof COMMANDS)[number];

export type Parameters = Readonly<Record<string, unknown>>;

/** Two names for a request. A peer is answered with the one that it used. */
export type WorkCommand = "WORKREQUEST" | "TASK";
export const replyCommand = (word: WorkCommand): Command => (word === "TASK" ? "TASKREPLY" : "WORKREPLY");
export const workCommandOf = (command: Command): WorkCommand => (command.startsWith("TASK") ? "TASK" : "WORKREQUEST");

const DISCONNECT_CODES = {
  301: "moved",
  400: "malformed",
  401: "not authorised",
  408: "heartbeat missed",
  409: "clock too far off",
  426: "config version differs",
  444: "no more answers to this peer",
  501: "unknown command",
  503: "not accepting",
  504: "no answer in time",
} as const;
export type DisconnectCode = keyof typeof DISCONNECT_CODES;
export const disconnectText = (code: DisconnectCode, why?: string): string =>
  why === undefined ? DISCONNECT_CODES[code] : `${DISCONNECT_CODES[code]}: ${why}`;

type MessageId = string | number | JsonText;
/** A message id under the name that the client used. */
export type MessageIdParameter =
  | { readonly message_id: MessageId }
  | { readonly id: MessageId }
  | Readonly<Record<string, never>>;

export interface BrokerUris {
  readonly identity: string;
  readonly worker_uri: string;
  readonly client_uri: string;
}

export interface ConnectRequest {
  readonly configType: ConfigType;
  readonly services: readonly string[] | undefined;
  readonly slots: number;
  readonly workCommand: WorkCommand | undefined;
}

const MAX_SERVICES = 1_000;
const MAX_SLOTS = 10_000;
/** One hour; longer times are reduced to it. */
const MAX_MS = 3_600_000;
const MAX_ID = 1_024;

export function readConnect(parameters: Parameters): ConnectRequest {
  const { config_type: type = "JSON", services, slots, work } = parameters;
  const configType = typeof type === "string" ? configTypeOf(type) : undefined;
  if (configType === undefined) throw input.unexpectedValue("config_type", "JSON, XML or ZFL", type);
  return {
    configType,
    services: input.optional(services, "services", readServices),
    slots: input.optional(slots, "slots", (value, what) => input.integer(value, what, 1, MAX_SLOTS)) ?? 1,
    workCommand: work === "TASK" || work === "WORKREQUEST" ? work : undefined,
  };
}

/** A list, or text with commas. */
export function readServices(value: unknown, what: string): readonly string[] {
  const list =
    typeof value === "string"
      ? value
          .split(",")
          .map((name) => name.trim())
          .filter(Boolean)
      : value;
  return [...new Set(input.list(list, what, MAX_SERVICES, input.text))];
}

export interface NeedBroker {
  readonly identity: string | undefined;
  readonly services: readonly string[] | undefined;
  readonly preferredBroker: string | undefined;
}

/** As long as ZeroMQ's. */
const MAX_IDENTITY = 255;

export function readNeedBroker({ identity, services, preferred_broker }: Parameters): NeedBroker {
  const named = (value: unknown): string | undefined =>
    typeof value === "string" && value !== "" ? value.slice(0, MAX_IDENTITY) : undefined;
  const offered = input.optional(services, "services", readServices) ?? [];
  return {
    identity: named(identity),
    services: offered.length === 0 ? undefined : offered,
    preferredBroker: named(preferred_broker),
  };
}

export interface Ping {
  readonly heartbeatMs: number | undefined;
  readonly time: number | undefined;
  /** Text or number, compared as text. */
  readonly configVersion: string | undefined;
}

/** The specification spells `config_version` in two ways. */
export function readPing({ heartbeat_interval, time, config_version, configversion }: Parameters): Ping {
  return {
    heartbeatMs: input.optional(heartbeat_interval, "heartbeat_interval", (value, what) =>
      Math.min(input.positive(value, what), MAX_MS),
    ),
    time: input.optional(time, "time", input.number),
    configVersion: input.optional(config_version ?? configversion, "config_version", readVersion),
  };
}

function readVersion(value: unknown, what: string): string {
  if (typeof value === "number" || (typeof value === "string" && value.length <= 64)) return String(value);
  throw input.unexpectedValue(what, "a number or text", value);
}

const IDENTIFIER_NAMES = ["work_request_identifier", "work_request_indentifier"] as const;
/** Values that are returned to a peer unchanged. */
export const ID_NAMES = ["message_id", "id", ...IDENTIFIER_NAMES] as const;

/** The identifier of a request under the names that the peer used. With TASK that may be `id`. */
export function readWorkIdentifier(parameters: Parameters): Parameters {
  const names = IDENTIFIER_NAMES.filter((name) => (parameters[name] ?? undefined) !== undefined);
  return Object.fromEntries((names.length === 0 ? ["id"] : names).map((name) => [name, parameters[name]]));
}

interface WorkRequest {
  readonly service: string;
  readonly timeoutMs: number;
  /** Send it to another worker once, if the first is lost. */
  readonly retry: boolean;
}

export const DEFAULT_TIMEOUT = 30_000;

export function readWorkRequest({ service, timeout, retry }: Parameters): WorkRequest {
  return {
    service: input.text(service, "service"),
    timeoutMs:
      input.optional(timeout, "timeout", (value, what) => Math.min(Math.ceil(input.positive(value, what)), MAX_MS)) ??
      DEFAULT_TIMEOUT,
    retry: input.optional(retry, "retry", input.flag) ?? false,
  };
}

/** With TASK its name may be `id`. */
export function readMessageId(command: Command, { message_id, id }: Parameters): MessageIdParameter {
  const given = message_id ?? undefined;
  if (given !== undefined) return { message_id: plainId(given, "message_id") };
  return command === "TASK" && (id ?? undefined) !== undefined ? { id: plainId(id, "id") } : {};
}

function plainId(value: unknown, what: string): MessageId {
  if (typeof value === "number") return value;
  if ((typeof value === "string" || value instanceof JsonText) && String(value).length <= MAX_ID) return value;
  throw input.unexpectedValue(what, `a number or text of up to ${MAX_ID} characters`, value);
}

/** The brokers of a CHANGEBROKER. Malformed entries are left out. */
export function readBrokers(value: unknown): BrokerUris[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((one: unknown) => {
    if (typeof one !== "object" || one === null) return [];
    const { identity, worker_uri: worker = "", client_uri: client = "" } = one as Parameters;
    if (typeof worker !== "string" || typeof client !== "string") return [];
    return [{ identity: typeof identity === "string" ? identity : worker, worker_uri: worker, client_uri: client }];
  });
}

export function disconnectError({ code, message }: Parameters): LaboroError & { readonly status: number } {
  const status = typeof code === "number" ? code : 0;
  const text = typeof message === "string" ? message : "the broker gave no reason";
  return Object.assign(new LaboroError(ERRORS[status] ?? "LABORO_SERVICE_FAILED", `${status}: ${text}`), { status });
}

const ERRORS: Readonly<Record<number, LaboroError["code"]>> = {
  301: "LABORO_BROKER_STOPPING",
  400: "LABORO_BAD_MESSAGE",
  401: "LABORO_FORBIDDEN",
  408: "LABORO_DEADLINE",
  409: "LABORO_BAD_INPUT",
  426: "LABORO_VERSION",
  501: "LABORO_BAD_MESSAGE",
  503: "LABORO_QUEUE_FULL",
  504: "LABORO_DEADLINE",
};

/** A value as its JSON text, so that a number keeps all its digits. */
export class JsonText {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  /** For traces only. Messages are written by `stringifyObject`. */
  toJSON(): string {
    return this.text;
  }
}

export function stringifyObject(object: Readonly<Record<string, unknown>>): string {
  if (!Object.values(object).some((value) => value instanceof JsonText)) return JSON.stringify(object);
  const members = Object.entries(object)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [JSON.stringify(name), value instanceof JsonText ? value.text : JSON.stringify(value)]);
  return `{${members.map((member) => member.join(":")).join(",")}}`;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** A member of a JSON object, as it is written there. The object must be valid. */
export function memberText(json: string, name: string): JsonText | undefined {
  let depth = 0;
  let key: string | undefined;
  let before = "";
  let start: number | undefined;
  let found: JsonText | undefined;
  for (const { 0: token, index } of json.matchAll(TOKEN)) {
    if (depth === 1 && before === ":") start = index;
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && (before === "{" || before === ",")) key = String(JSON.parse(token));
    if (depth === 1 && start !== undefined) {
      if (key === name) found = new JsonText(json.slice(start, index + token.length));
      start = undefined;
    }
    before = token;
  }
  return found;
}
