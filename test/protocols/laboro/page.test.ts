import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FROM_CLIENT, TO_CLIENT } from "../../../src/protocols/laboro/codec-client.js";
import { FROM_WORKER } from "../../../src/protocols/laboro/codec-from-worker.js";
import { TO_WORKER } from "../../../src/protocols/laboro/codec-to-worker.js";
import { REPOSITORY } from "../../support/launched.js";

const page = readFileSync(join(REPOSITORY, "docs/reference/protocols/laboro.md"), "utf8");
const sectionOf = (heading: string): string => page.split(/^## /m).find((text) => text.startsWith(heading)) ?? "";

const listed = (heading: string, ...senders: string[]): string[] =>
  Array.from(sectionOf(heading).matchAll(/^\| (\d+) \| `(\w+)` \| (\w+) \|/gm))
    .filter(([, , , from = ""]) => senders.includes(from))
    .map(([, number, name]) => `${number} ${name}`)
    .sort();

const known = (codecs: Readonly<Record<string, { readonly number: number }>>): string[] =>
  Object.entries(codecs)
    .map(([name, { number }]) => `${number} ${name}`)
    .sort();

describe("docs/reference/protocols/laboro.md", () => {
  it.each([
    ["a worker", listed("Worker and broker", "W", "both"), FROM_WORKER],
    ["the broker to a worker", listed("Worker and broker", "B", "both"), TO_WORKER],
    ["a client", listed("Client and broker", "C", "both"), FROM_CLIENT],
    ["the broker to a client", listed("Client and broker", "B", "both"), TO_CLIENT],
  ] as const)("lists every message from %s with its number", (_, found, codecs) => {
    expect(found).toEqual(known(codecs));
  });
});
