/** `laboro alloc`: workers that a batch system runs while work waits for them. */
import { Argument, Command } from "commander";
import { badInput } from "../../base/errors.js";
import { ago, shortDuration } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import type { AllocatorInfo } from "../../client/schedules.js";
import { allocatorInput, allocatorName, MANAGERS } from "../../model/allocation.js";
import { addBrokerOptions, type BrokerChoice, openRunningBroker, withBroker } from "../lib/broker-connection.js";
import { collect, formatDuration, parseDuration, parseResources, wholeNumber } from "../lib/option-parsers.js";
import { printJson, printLines, printNotice } from "../lib/print.js";
import { type Column, printList, table } from "../lib/terminal/table.js";
import { detectTerminal } from "../lib/terminal/terminal.js";

const ACTIONS = ["list", "add", "show", "log", "pause", "resume", "dry-run", "remove"] as const;
type Action = (typeof ACTIONS)[number];

interface Options extends BrokerChoice {
  readonly maxWorkers?: number;
  readonly backlog?: number;
  readonly timeLimit?: number;
  readonly idleTimeout?: number;
  readonly slots?: number;
  readonly nodes?: number;
  readonly resource: readonly string[];
  readonly pool?: string;
  readonly tag: readonly string[];
  readonly before?: string;
  readonly forward?: string;
  readonly dir?: string;
  readonly replace?: boolean;
  readonly dryRun?: boolean;
  readonly cancelRunning?: boolean;
  readonly json?: boolean;
}

export function alloc(): Command {
  const command = new Command("alloc")
    .description("Let a batch system run workers: requested while suitable work waits, released when idle.")
    .addArgument(new Argument("[action]", "what to do").choices(ACTIONS).default("list"))
    .argument("[names...]", "the allocator; add: slurm, the allocator, and after -- options of sbatch")
    .option("--max-workers <n>", "add: workers at a time, queued ones included", wholeNumber(20, 1))
    .option("--backlog <n>", "add: allocations that wait in the queue at a time (default: 1)", wholeNumber(2, 1))
    .option(
      "--time-limit <duration>",
      "add: the time of each allocation, such as 1h; tasks must fit into it",
      parseDuration,
    )
    .option(
      "--idle-timeout <duration>",
      "add: a worker ends after this long without a task (default: 5m)",
      parseDuration,
    )
    .option("--slots <n>", "add: slots of each worker, and CPUs requested for it (default: 1)", wholeNumber(2, 1))
    .option("--nodes <n>", "add: nodes of each allocation, with one worker on each (default: 1)", wholeNumber(2, 1))
    .option("--resource <name=amount>", "add: what each worker offers, such as gpu=1; may be repeated", collect, [])
    .option("--pool <name>", "add: its workers run tasks of this pool only")
    .option("--tag <tag>", "add: a tag of its workers; may be repeated", collect, [])
    .option("--before <line>", "add: a shell line of the job script before the worker, such as 'module load R'")
    .option("--forward <host>", "add: nodes reach the broker through ssh to this host, such as the login node")
    .option("--dir <dir>", "add: for job scripts and output; the nodes must see it (default: in the home directory)")
    .option("--replace", "add: replace an existing allocator of this name")
    .option("--dry-run", "add: show what it would request, and save nothing")
    .option("--cancel-running", "remove: also cancel running allocations")
    .option("--json", "print JSON");
  return addBrokerOptions(command).addHelpText("after", EXAMPLES).action(perform);
}

const EXAMPLES = `
Examples:
  laboro alloc add slurm short --max-workers 20 --backlog 2 --time-limit 1h --slots 4 -- --partition=short
  laboro alloc
  laboro alloc log short
  laboro alloc dry-run short
  laboro alloc pause short`;

async function perform(action: Action, names: readonly string[], options: Options): Promise<void> {
  const [name, ...rest] = names;
  if (action === "add") {
    await withBroker(options, addition(names, options), openRunningBroker);
    return;
  }
  if (rest[0] !== undefined) throw badInput(`laboro alloc ${action} takes one allocator, got also ${rest[0]}`);
  if (action === "list") {
    if (name !== undefined) throw badInput(`laboro alloc list takes no name; laboro alloc show ${name} does`);
    await withBroker(options, (client) => list(client, options), openRunningBroker);
    return;
  }
  if (name === undefined) throw badInput(`which allocator? laboro alloc ${action} NAME, such as short`);
  allocatorName.read(name, "the name of the allocator");
  await withBroker(options, (client) => ACTS[action](client, name, options), openRunningBroker);
}

/** Reads everything before it connects. */
function addition([manager, name, ...args]: readonly string[], options: Options): (client: Client) => Promise<void> {
  if (manager === undefined || !(MANAGERS as readonly string[]).includes(manager))
    throw badInput(`laboro alloc add: expected slurm and a name, such as laboro alloc add slurm short, got ${manager}`);
  if (name === undefined) throw badInput("which name? laboro alloc add slurm NAME, such as short");
  const { maxWorkers, timeLimit, backlog, idleTimeout, slots, nodes, pool, before, forward, dir } = options;
  if (maxWorkers === undefined)
    throw badInput("--max-workers is missing: at most how many workers at a time, such as --max-workers 20");
  if (timeLimit === undefined)
    throw badInput("--time-limit is missing: how long each allocation lasts, such as --time-limit 1h");
  const input = allocatorInput.read(
    {
      ...{ manager, maxWorkers, backlog, timeLimitMs: timeLimit, idleTimeoutMs: idleTimeout, slots, nodes, pool },
      ...{ before, forward, dir, args, tags: options.tag, resources: parseResources(options.resource) },
    },
    "",
  );
  allocatorName.read(name, "the name of the allocator");
  return async (client) => {
    if (options.dryRun === true) {
      await showDryRun(client, name, options, input);
      return;
    }
    const ifExists = options.replace === true ? "replace" : "refuse";
    const saved = await client.ask("allocatorSet", { ...input, allocator: name, ifExists });
    report(saved, options, `allocator ${name} is saved; laboro alloc log ${name} shows what it does`);
    if (saved.warning !== undefined)
      printNotice(`${saved.warning}; start it with laboro serve --listen 0.0.0.0, or name this machine with --forward`);
  };
}

type Act = (client: Client, name: string, options: Options) => Promise<void>;

const ACTS: Readonly<Record<Exclude<Action, "list" | "add">, Act>> = {
  show: async (client, name, options) => {
    const found = await client.allocators.get(name);
    if (options.json === true) printJson(found);
    else printLines(...details(found));
  },
  log: async (client, name, { json }) => {
    const lines = await client.allocators.log(name);
    if (json === true) printJson({ lines });
    else
      for (const { at, kind, text, allocation } of lines) {
        const which = allocation === undefined ? name : `${name}.${allocation}`;
        printLines(`${new Date(at).toISOString().slice(0, 19)}Z  ${kind.padEnd(11)}  ${which}: ${text}`);
      }
  },
  pause: async (client, name, options) =>
    report(await client.allocators.pause(name), options, `allocator ${name} is paused; workers that run stay`),
  resume: async (client, name, options) =>
    report(await client.allocators.resume(name), options, `allocator ${name} is resumed`),
  "dry-run": (client, name, options) => showDryRun(client, name, options),
  remove: async (client, name, options) => {
    await client.allocators.remove(name, { cancelRunning: options.cancelRunning === true });
    if (options.json === true) printJson({});
    else
      printLines(
        `allocator ${name} is removed; ` +
          (options.cancelRunning === true
            ? "all its allocations are cancelled"
            : "what it has in the queue is cancelled"),
      );
  },
};

async function showDryRun(
  client: Client,
  allocator: string,
  { json }: Options,
  spec?: Parameters<Client["allocators"]["set"]>[1],
): Promise<void> {
  const found = await client.allocators.dryRun(allocator, spec);
  process.exitCode = found.accepted ? 0 : 1;
  if (json === true) {
    printJson(found);
    return;
  }
  printLines(
    `it would request ${found.asks === 1 ? "1 allocation" : `${found.asks} allocations`} now: ${found.status}`,
    ...found.unfit.map(({ job, tasks, reason }) => `not for ${tasks} tasks like those of job ${job}: ${reason}`),
    `by ${found.command.join(" ")}`,
    `${found.manager} ${found.accepted ? "accepts it" : "refuses it"}: ${found.answer}`,
    ...["", found.script.trimEnd()],
  );
}

function report(saved: AllocatorInfo, options: Options, line: string): void {
  if (options.json === true) printJson(saved);
  else printLines(line);
}

const COLUMNS: readonly Column[] = [
  { title: "NAME", minWidth: 8 },
  { title: "STATE" },
  { title: "QUEUED", align: "right" },
  { title: "RUNNING", align: "right" },
  { title: "MAX", align: "right" },
  { title: "SLOTS", align: "right", dropPriority: 2 },
  { title: "TIME", align: "right", dropPriority: 1 },
  { title: "STATUS", minWidth: 10 },
];

async function list(client: Client, { json }: Options): Promise<void> {
  const found = await client.allocators.list();
  const rows = found.map(({ name, state, counts, maxWorkers, slots, timeLimitMs, status }) => [
    ...[name, state, String(counts.queued), String(counts.running), String(maxWorkers), String(slots)],
    ...[formatDuration(timeLimitMs), status],
  ]);
  const none = "there are no allocators; laboro alloc add slurm NAME --max-workers 20 --time-limit 1h adds one";
  printList({ document: { allocators: found }, json, columns: COLUMNS, rows, none });
}

const ALLOCATION_COLUMNS: readonly Column[] = [
  { title: "ALLOCATION" },
  { title: "STATE" },
  { title: "JOB", align: "right" },
  { title: "ASKED" },
  { title: "RAN", align: "right" },
  { title: "WORKERS", minWidth: 7 },
  { title: "REASON", minWidth: 10 },
];

function details(one: AllocatorInfo): string[] {
  const { name, allocations, problem, resources, tags } = one;
  const worker = [
    `${one.slots} slots`,
    ...Object.entries(resources).map(([resource, amount]) => `${resource}=${amount}`),
    `pool ${one.pool}`,
    ...(tags.length > 0 ? [`tags ${tags.join(", ")}`] : []),
    `idle timeout ${formatDuration(one.idleTimeoutMs)}`,
  ];
  const lines: [string, string | undefined][] = [
    ["allocator", `${name} (${one.state})`],
    ["status", one.status],
    ["limits", `at most ${one.maxWorkers} workers, ${one.backlog} in the queue`],
    ["allocation", `${formatDuration(one.timeLimitMs)}, ${one.nodes === 1 ? "1 node" : `${one.nodes} nodes`}`],
    ["worker", worker.join(", ")],
    ["options", one.args.length === 0 ? undefined : one.args.join(" ")],
    ["before", one.before],
    ["forward", one.forward],
    ["files", one.dir],
    ["warning", one.warning],
    ["problem", problem === undefined ? undefined : `${problem.text} (${ago(problem.at)})`],
  ];
  const now = Date.now();
  const rows = allocations.map(({ number, state, id = "", asked, started, ended = now, reason = "", workers }) => [
    ...[`${name}.${number}`, state, id, ago(asked), started === undefined ? "" : shortDuration(ended - started)],
    ...[workers.join(", "), reason],
  ]);
  const last = allocations.at(-1);
  return [
    ...lines.flatMap(([what, text]) => (text === undefined ? [] : [`${what.padEnd(12)}${text}`])),
    ...(rows.length === 0 ? [] : ["", ...table(ALLOCATION_COLUMNS, rows, detectTerminal())]),
    ...(last === undefined ? [] : ["", `output of ${name}.${last.number}: ${last.output}`]),
  ];
}
