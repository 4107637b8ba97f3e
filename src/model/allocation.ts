/**
 * Allocators. Each asks a batch system for allocations (jobs of that system that run workers) while suitable work
 * waits. An allocator is one small text in the store, under its name: its spec, its last allocations, and its log.
 */
import { unexpectedValue } from "./input.js";
import { DEFAULT_POOL } from "./recipe.js";
import * as s from "./schema.js";

export const ALLOCATOR_BUCKET = "allocator";
export const MANAGERS = ["slurm"] as const;

const MINUTE_MS = 60_000;
const MAX_TIME_MS = 366 * 24 * 60 * MINUTE_MS;
const MAX_WORKERS = 10_000;

/** Without a dot: NAME.3 is the third allocation of NAME. */
export const allocatorName = s.mapped(s.described(s.text(40), "the name of the allocator"), (given, what) => {
  if (/^[A-Za-z0-9][\w-]*$/.test(given)) return given;
  throw unexpectedValue(what, "a name of letters, digits, _ and -, such as short", given);
});

/** Options of sbatch that an allocator sets itself, and what to use instead. */
const RESERVED: readonly (readonly [long: string, short: string, instead: string])[] = [
  ["time", "t", "--time-limit"],
  ["nodes", "N", "--nodes before the --"],
  ["output", "o", "--dir"],
  ["error", "e", "--dir"],
  ["job-name", "J", "the name of the allocator"],
  ["array", "a", "--max-workers and --backlog"],
  ["wrap", "", "--before"],
  ["parsable", "", "nothing: it is set"],
  ["wait", "W", "nothing: the broker waits"],
  ["test-only", "", "laboro alloc dry-run"],
  ["clusters", "M", "a broker that runs on that cluster"],
  ["hold", "H", "laboro alloc pause"],
];

const managerArgs = s.mapped(s.list(s.text(1_000), 100), (args, what) => {
  args.forEach((arg, at) => {
    const [, long] = /^--([a-z-]+)/.exec(arg) ?? [];
    const [, short] = /^-([A-Za-z])/.exec(arg) ?? [];
    const reserved = RESERVED.find(([name, letter]) =>
      long === undefined ? short !== undefined && letter === short : name.startsWith(long),
    );
    if (reserved !== undefined) throw unexpectedValue(`${what}[${at}]`, `${reserved[2]} instead`, arg);
    const before = args[at - 1];
    const isValue = before?.startsWith("-") === true && !before.includes("=");
    if (!arg.startsWith("-") && !isValue)
      throw unexpectedValue(`${what}[${at}]`, "an option of sbatch such as --partition=short", arg);
    if (/[\0\r\n]/.test(arg)) throw unexpectedValue(`${what}[${at}]`, "one line", arg);
  });
  return args;
});

const resources = s.mapped(s.record(s.positive()), (given, what) => {
  for (const name of Object.keys(given))
    if (!/^[\w-]+$/.test(name) || name === "slots") throw unexpectedValue(what, "names such as gpu", name);
  return given;
});

const word = (example: string) =>
  s.mapped(s.text(200), (given, what) => {
    if (/^[^\s,\0]+$/.test(given)) return given;
    throw unexpectedValue(what, `one word such as ${example}`, given);
  });

const directory = s.mapped(s.text(500), (given, what) => {
  if (given.startsWith("/") && !/[\0\r\n|]/.test(given)) return given;
  throw unexpectedValue(what, "an absolute path such as /home/ann/laboro", given);
});

/** What a client asks for. */
export const allocatorInput = s.object({
  manager: s.withDefault(s.described(s.choice(...MANAGERS), "the batch system"), "slurm"),
  maxWorkers: s.integer(1, MAX_WORKERS, "workers of its allocations at a time, queued ones included"),
  backlog: s.withDefault(s.integer(1, 1_000, "allocations that wait in the queue at a time"), 1),
  timeLimitMs: s.integer(MINUTE_MS, MAX_TIME_MS, "of each allocation"),
  idleTimeoutMs: s.withDefault(
    s.integer(1_000, MAX_TIME_MS, "a worker ends after this long without a task"),
    5 * MINUTE_MS,
  ),
  slots: s.withDefault(s.integer(1, 10_000, "slots of each worker, and CPUs requested for it"), 1),
  nodes: s.withDefault(s.integer(1, 1_000, "nodes of each allocation, with one worker on each"), 1),
  resources: s.withDefault(s.described(resources, "what each worker offers besides slots"), {}),
  pool: s.withDefault(word("night"), DEFAULT_POOL),
  tags: s.withDefault(s.list(word("big"), 100), []),
  before: s.optional(s.described(s.text(10_000), "shell lines of the job script before the worker starts")),
  forward: s.optional(
    s.described(
      word("login1"),
      "each node reaches the broker through ssh to this host; where nodes cannot connect to it",
    ),
  ),
  dir: s.optional(s.described(directory, "for job scripts and their output: the nodes must see it under this path")),
  args: s.withDefault(s.described(managerArgs, "options of sbatch, such as --partition=short"), []),
});

/** What `client.allocators.set` takes. */
export type AllocatorInput = s.WrittenType<typeof allocatorInput>;
export type AllocatorSpec = s.ReadType<typeof allocatorInput> & { readonly dir: string };

export const ALLOCATION_STATES = ["asking", "queued", "running", "ended"] as const;

/** One job of the batch system. Times are by the clock of the broker that noticed. */
export interface Allocation {
  readonly number: number;
  state: (typeof ALLOCATION_STATES)[number];
  /** The id of its job in the batch system; absent until that has answered. */
  id?: string;
  readonly asked: number;
  started?: number;
  /** When its first worker joined, and whether its workers have ended a task. */
  joined?: number;
  useful?: true;
  /** How many of its workers have been connected at the same time, at most. */
  workers?: number;
  ended?: number;
  /** Why it waits in the queue, or how it ended. */
  reason?: string;
  /** Since when no work waits that it could do. */
  unneeded?: number;
  cancelling?: true;
  /** It counts among the failures in a row. */
  failed?: true;
}

export const LOG_KINDS = [
  ...["saved", "asked", "queued", "started", "joined", "ended", "requeued", "cancelled", "refused", "failed"],
  ...["lost", "full", "unreachable", "missing", "taken", "answering", "recovered", "paused", "resumed"],
] as const;
export type LogKind = (typeof LOG_KINDS)[number];

export interface LogLine {
  readonly at: number;
  readonly kind: LogKind;
  readonly text: string;
  readonly allocation?: number;
}

export interface AllocatorState {
  readonly created: number;
  changed: number;
  /** The number of its next allocation. */
  next: number;
  paused?: { readonly at: number; readonly by: "user" | "failures"; readonly reason?: string };
  /** It is removed as soon as nothing is queued; with `all`, running allocations are cancelled, too. */
  removing?: "queued" | "all";
  /** Failures in a row of the allocator itself: its request was refused, or no worker came of it. */
  failures: number;
  /** Allocations of lower numbers were requested before the last failure. */
  failedBefore?: number;
  /** Times in a row that the batch system did not answer, had no room, or took nodes away. */
  troubles: number;
  /** Nothing is requested before this time. */
  notBefore?: number;
  /** The last failure or trouble, until one succeeds. */
  problem?: { readonly kind: LogKind; readonly at: number; readonly text: string; readonly unseen?: boolean };
  /** What its workers have found on their machines, such as mem. */
  detected?: Readonly<Record<string, number>>;
  readonly allocations: Allocation[];
  readonly log: LogLine[];
}

export interface Allocator {
  readonly name: string;
  readonly spec: AllocatorSpec;
  readonly state: AllocatorState;
}

/** A worker that an allocation has started has this tag. */
export const allocationTag = (name: string, number: number): string => `allocation:${name}.${number}`;

/** The worker on one of its nodes. */
export const workerName = (name: string, number: number, nodes: number, at: number | string): string =>
  nodes === 1 ? `${name}.${number}` : `${name}.${number}.${at}`;

export function allocationOfTags(tags: readonly string[]): { name: string; number: number } | undefined {
  for (const tag of tags) {
    const [, name, number] = /^allocation:([\w-]+)\.(\d+)$/.exec(tag) ?? [];
    if (name !== undefined) return { name, number: Number(number) };
  }
  return undefined;
}

/** The end of its time: tasks that still run are stopped then and return to the queue. */
const STOP_MS = 20_000;

const marginOf = ({ timeLimitMs }: AllocatorSpec): number =>
  Math.min(5 * MINUTE_MS, Math.max(MINUTE_MS / 2, timeLimitMs * 0.05));

/** A worker takes no more tasks after this part of its allocation's time. */
export const lifetimeOf = (spec: AllocatorSpec): number => spec.timeLimitMs - marginOf(spec);

/** After that, running tasks may continue for this long. */
export const lifetimeGraceOf = (spec: AllocatorSpec): number => marginOf(spec) - STOP_MS;

export const isLive = ({ state }: Allocation): boolean => state !== "ended";
