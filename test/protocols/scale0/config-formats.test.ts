import { deepStrictEqual } from "node:assert/strict";
import fc from "fast-check";
import { XMLParser, XMLValidator } from "fast-xml-parser";
import { describe, expect, it } from "vitest";
import { CONFIG_BYTES, CONFIG_DEPTH, type Config, type ConfigValue } from "../../../src/model/worker-settings.js";
import { parseConfig, writeConfig } from "../../../src/protocols/scale0/config-formats.js";

/** Words that mean something in one of the formats, among any others. */
const awkward = fc.constantFrom(
  ...[
    "",
    " ",
    "  two ",
    "null",
    "true",
    "0",
    "-0",
    "1e3",
    "1e999",
    "007",
    "[]",
    "$item",
    "item",
    "#",
    "a # b",
    "a=b",
    "x = y",
  ],
  ...[
    "\n",
    "a\nb",
    "\r\n",
    "\t",
    "'",
    '"',
    `'"`,
    "\\",
    '\\"',
    "\\n",
    "&amp;",
    "<a>",
    "]]>",
    "<!--",
    "\u0000",
    "\u007f",
    "\u2028",
    "\ud800",
  ],
  ...[
    "__proto__",
    "constructor",
    "toString",
    "prototype",
    "xml",
    "setting",
    "name",
    "config",
    "version",
    ":@",
    "#text",
    "@_a",
    "é",
    "日本",
    "💡",
  ],
);
const text = fc.oneof(awkward, fc.string(), fc.string({ unit: "binary" }), fc.string({ unit: "grapheme" }));
const number = fc
  .oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true }))
  .map((n) => (n === 0 ? 0 : n));

const { config } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    text,
    number,
    fc.boolean(),
    fc.constant(null),
    fc.array(tie("value"), { maxLength: 4 }),
    tie("config"),
  ),
  config: fc.dictionary(text, tie("value"), { maxKeys: 6, noNullPrototype: true }),
})) as unknown as { config: fc.Arbitrary<Config> };

/** A property of ZFL: a name, and a value in quotes or without blanks. */
const ZFL_LINE =
  /^(?: {4})*(?:#.*|(?:[\w@.&+/-][\w$@.&+/-]*|\$item|"[^"]*"|'[^']*')(?: = (?:"[^"]*"|'[^']*'|\[\]|[^\s"'#]+))?)$/;

describe("whatever a config holds", () => {
  it("comes back from JSON as it was", () => {
    fc.assert(
      fc.property(config, fc.nat(), (given, version) => {
        deepStrictEqual(parseConfig(Buffer.from(writeConfig("JSON", given, version)).toString()), given);
      }),
      { numRuns: 500 },
    );
  });

  it("is valid XML, with every text in it", () => {
    fc.assert(
      fc.property(config, fc.nat(), (given, version) => {
        const xml = writeConfig("XML", given, version);
        expect(XMLValidator.validate(xml)).toBe(true);
        const parser = new XMLParser({
          ignoreAttributes: false,
          preserveOrder: true,
          parseTagValue: false,
          trimValues: false,
        });
        const [root] = parser.parse(xml) as readonly { readonly config: readonly Node[] }[];
        const texts = textsIn(root?.config ?? []);
        expect(texts.toSorted()).toEqual(scalarsIn(given).toSorted());
      }),
      { numRuns: 500 },
    );
  });

  it("is lines of ZFL, four blanks a level", () => {
    fc.assert(
      fc.property(config, fc.nat(), (given, version) => {
        const lines = writeConfig("ZFL", given, version).split("\n");
        expect(lines.pop()).toBe("");
        for (const line of lines) expect(line).toMatch(ZFL_LINE);
      }),
      { numRuns: 500 },
    );
  });
});

type Node = Readonly<Record<string, unknown>>;

/** The texts of the elements that hold no others; escaped ones are those of a JSON string. */
const textsIn = (nodes: readonly Node[]): string[] =>
  nodes.flatMap((node) => {
    const { "@_type": type, "@_escaped": escaped } = (node[":@"] ?? {}) as Record<string, string>;
    return Object.entries(node).flatMap(([name, children]) => {
      if (name === ":@" || name === "#text") return [];
      const inside = children as readonly Node[];
      if (type === "list" || type === "object" || inside.some((child) => !("#text" in child))) return textsIn(inside);
      const text = inside.map((child) => child["#text"]).join("");
      return [escaped === "true" ? (JSON.parse(`"${text}"`) as string) : text];
    });
  });

function scalarsIn(value: ConfigValue): string[] {
  if (typeof value !== "object" || value === null) return [String(value)];
  return Object.values(value).flatMap((one: ConfigValue) => scalarsIn(one));
}

const nested = (depth: number): Config | number => (depth === 0 ? 1 : { a: nested(depth - 1) });

const EXAMPLE: Config = {
  identity: "w1",
  services: ["upper"],
  brokers: [
    { identity: "east", worker_uri: "tcp://east:8081" },
    { identity: "west", worker_uri: "tcp://west:8081" },
  ],
  heartbeat_interval: 2500,
  port: "2500",
  words: ["one", "two"],
  none: [],
  empty: {},
  nothing: null,
  blank: "",
  yes: true,
  nested: [[1, 2], [], [["x"]]],
  "2nd name": 'say "hi" # there',
  lines: "a\nb",
  both: `'"`,
};

describe("what is written", () => {
  it("is XML that a person would write", () => {
    expect(writeConfig("XML", EXAMPLE, 3)).toMatchInlineSnapshot(`
      "<config version="3">
        <identity>w1</identity>
        <services list="true">upper</services>
        <brokers>
          <identity>east</identity>
          <worker_uri>tcp://east:8081</worker_uri>
        </brokers>
        <brokers>
          <identity>west</identity>
          <worker_uri>tcp://west:8081</worker_uri>
        </brokers>
        <heartbeat_interval>2500</heartbeat_interval>
        <port type="string">2500</port>
        <words>one</words>
        <words>two</words>
        <none type="list"/>
        <empty type="object"/>
        <nothing>null</nothing>
        <blank/>
        <yes>true</yes>
        <nested type="list">
          <item>1</item>
          <item>2</item>
        </nested>
        <nested type="list"/>
        <nested type="list">
          <item type="list">
            <item>x</item>
          </item>
        </nested>
        <setting name="2nd name">say &quot;hi&quot; # there</setting>
        <lines>a
      b</lines>
        <both>&apos;&quot;</both>
      </config>
      "
    `);
  });

  it("is ZFL that a person would write", () => {
    expect(writeConfig("ZFL", EXAMPLE, 3)).toMatchInlineSnapshot(`
      "# config version 3
      identity = w1
      # a list of one
      services = upper
      brokers
          identity = east
          worker_uri = tcp://east:8081
      brokers
          identity = west
          worker_uri = tcp://west:8081
      heartbeat_interval = 2500
      port = "2500"
      words = one
      words = two
      none = []
      empty
      nothing = null
      blank = ""
      yes = true
      nested
          $item = 1
          $item = 2
      nested = []
      nested
          $item
              $item = x
      "2nd name" = 'say "hi" # there'
      lines = "a\\nb"
      both = "'\\u0022"
      "
    `);
  });
});

describe("what is read is refused where it is", () => {
  it.each([
    ["cut", '{"a":', /JSON/],
    ["no object", "[1]", /names/],
    ["no JSON", "<config/>", /JSON/],
    ["too deep", JSON.stringify(nested(CONFIG_DEPTH + 1)), /levels/],
    ["far too deep", `${"[".repeat(100_000)}${"]".repeat(100_000)}`, /config: /],
    ["too long", JSON.stringify({ a: "x".repeat(CONFIG_BYTES) }), /bytes/],
  ])("%s", (_what, given, why) => {
    expect(() => parseConfig(given)).toThrow(
      expect.objectContaining({ code: "LABORO_BAD_INPUT", message: expect.stringMatching(why) }),
    );
  });
});
