/** Who can ask whom: every kind of asker, every kind of worker, and what passes between them. The README's table is made from this. */

export type Work = "commands" | "scripts" | "requests";

export const ASKERS = {
  SDK: ["commands", "scripts", "requests"],
  "command line": ["commands", "scripts", "requests"],
  REST: ["commands", "scripts", "requests"],
  "fuq client": ["commands"],
  "experiments folder": ["scripts"],
  "round-robin client": ["requests"],
  "Scale0 client": ["requests"],
} as const satisfies Readonly<Record<string, readonly Work[]>>;

export const WORKERS = {
  laboro: ["commands", "scripts", "requests"],
  "fuq v2, WebSocket": ["commands"],
  "fuq v2, raw": ["commands"],
  "fuq, polling": ["commands"],
  "fuq v1": ["commands"],
  "runexp runner": ["commands", "scripts"],
  "round-robin": ["requests"],
  Scale0: ["requests"],
} as const satisfies Readonly<Record<string, readonly Work[]>>;

export type Asker = keyof typeof ASKERS;
export type Worker = keyof typeof WORKERS;

export const askers = Object.keys(ASKERS) as readonly Asker[];
export const workers = Object.keys(WORKERS) as readonly Worker[];

/** What this asker can have done by this worker. */
export function between(asker: Asker, worker: Worker): readonly Work[] {
  const does: readonly Work[] = WORKERS[worker];
  return ASKERS[asker].filter((work) => does.includes(work));
}

/** Why nothing passes between them. */
export function whyNot(asker: Asker, worker: Worker): string {
  return `${asker} asks for ${ASKERS[asker].join(", ")}; a ${worker} worker does ${WORKERS[worker].join(", ")}`;
}

/** As it stands in the README. */
export function table(): string {
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  return [
    row(["asks ↓ does →", ...workers]),
    row(["---", ...workers.map(() => "---")]),
    ...askers.map((asker) =>
      row([`**${asker}**`, ...workers.map((worker) => between(asker, worker).join(", ") || "–")]),
    ),
  ].join("\n");
}
