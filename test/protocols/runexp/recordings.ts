/** Conversations of the original programs, as they were recorded: each send of each side, in order. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const DIR = fileURLToPath(new URL("../../fixtures/runexp/", import.meta.url));

export interface Send {
  readonly from: "runner" | "manager";
  readonly bytes: Buffer;
}

interface Row {
  readonly dir: "r>m" | "m>r";
  readonly ev: string;
  readonly text?: string;
  readonly hex?: string;
}

export const RECORDINGS: readonly string[] = readdirSync(DIR)
  .filter((name) => name.endsWith(".jsonl"))
  .map((name) => name.replace(/\.jsonl$/, ""));

/** What arrived at the other side: where a proxy had changed or joined something, what it passed on. */
export function recording(name: string): readonly Send[] {
  const rows = readFileSync(join(DIR, `${name}.jsonl`), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Row);
  const sends: Send[] = [];
  for (const [at, { dir, ev, text, hex }] of rows.entries()) {
    if (ev !== "data") continue;
    const passedOn = rows.slice(at + 1, at + 4).some((row) => row.ev === "forwarded" && row.dir === dir);
    if (passedOn && name === "wrongversion") continue;
    const bytes = hex === undefined ? Buffer.from(text ?? "") : Buffer.from(hex, "hex");
    sends.push({ from: dir === "r>m" ? "runner" : "manager", bytes });
  }
  if (name === "wrongversion") sends.push({ from: "manager", bytes: Buffer.from("VERSIO 1.4") });
  return sends;
}
