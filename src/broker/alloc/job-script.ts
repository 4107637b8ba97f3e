/** What an allocation runs: the request to the batch system, and the job script, which starts a worker on each node. */
import { type AllocatorSpec, allocationTag, lifetimeGraceOf, lifetimeOf } from "../../model/allocation.js";
import type { AllocationFiles } from "./allocation-files.js";
import type { AskRequest, BatchManager } from "./batch-manager.js";

export function requestFor(spec: AllocatorSpec, files: AllocationFiles, name: string, number: number): AskRequest {
  const { script, output } = files.of(number);
  const { timeLimitMs, nodes, slots, args } = spec;
  return { name, script, output, timeLimitMs, nodes, slots, args };
}

export function scriptText(
  spec: AllocatorSpec,
  files: AllocationFiles,
  name: string,
  number: number,
  words: BatchManager["script"],
): string {
  const { nodes, slots, pool, tags, resources, idleTimeoutMs, before, forward } = spec;
  const worker = [
    ...[process.execPath, files.worker],
    ...["--join", `@${files.joinUrl}`, "--pool", pool, "--slots", String(slots)],
    ...["--lifetime-grace", `${Math.floor(lifetimeGraceOf(spec) / 1000)}s`],
    ...["--idle-timeout", `${Math.ceil(idleTimeoutMs / 1000)}s`],
    ...[allocationTag(name, number), ...tags].flatMap((tag) => ["--tag", tag]),
    ...Object.entries(resources).flatMap(([resource, amount]) => ["--resource", `${resource}=${amount}`]),
  ];
  const own = `${name}.${number}`;
  const launcher = nodes === 1 ? "" : `${words.onEachNode(slots)} `;
  const lifetime = Math.floor(lifetimeOf(spec) / 1000);
  const options = `--lifetime "\${left}s" --dir "$dir" --name "$0${nodes === 1 ? "" : `.${words.node}`}"`;
  // A shell on each node removes the directory of the worker. The batch system also sends SIGTERM to the worker; the
  // shell outlives it. The time of the allocation started before the first line of the script.
  const start = [
    `past=$(($(date +%s)-$1)); shift; [ $past -ge 0 ] || past=0; left=$((${lifetime}-past))`,
    '[ $left -gt 0 ] || { echo "no time is left for a worker: its start took $past s" >&2; exit 1; }',
    `trap : TERM; dir=\${TMPDIR:-/tmp}/laboro-${files.storeId}-${words.jobId}.${words.node}`,
    ...(forward === undefined
      ? [`"$@" ${options}; code=$?`]
      : [...forwardLines(forward, files.joinUrl), `"$@" --tunnels "$tunnels" ${options}; code=$?; kill -HUP $forward`]),
    `rm -rf "$dir"${forward === undefined ? "" : ' "$tunnels"'}; exit $code`,
  ].join("\n");
  return [
    "#!/bin/sh",
    `# Allocation ${own} of laboro: a worker for as long as the allocation lasts. Written by the broker.`,
    "unset LABORO_BROKER LABORO_DATA LABORO_TOKEN",
    "laboro_start=$(date +%s)",
    ...(before === undefined ? [] : [before]),
    `set -- ${worker.map(quoted).join(" ")}`,
    `exec ${launcher}sh -c ${quoted(start)} ${own} "$laboro_start" "$@"`,
    "",
  ].join("\n");
}

/**
 * Opens a Unix socket that leads to the broker through ssh, and opens it again whenever ssh ends. It ignores the
 * SIGTERM that the batch system sends to all processes: the worker needs it to leave.
 */
const forwardLines = (host: string, joinUrl: string): string[] => [
  `tunnels=$(mktemp -d /tmp/laboro-tunnels-XXXXXX) && at=$(sed 's/^[^@]*@//; s/#.*//' ${quoted(joinUrl)}) || exit 1`,
  "(trap '' TERM; trap 'kill -HUP $ssh; exit' HUP",
  "while :; do",
  "  ssh -N -o BatchMode=yes -o ControlPath=none -o ServerAliveInterval=15 -o ExitOnForwardFailure=yes \\",
  `    -o StreamLocalBindUnlink=yes -L "$tunnels/$(printf %s "$at" | tr -c A-Za-z0-9_.- _).sock:$at" ${quoted(host)} </dev/null &`,
  "  ssh=$!; wait $ssh; sleep 2",
  "done) & forward=$!",
];

const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
