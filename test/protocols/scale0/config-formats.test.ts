import { deepStrictEqual } from "node:assert/strict";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CONFIG_BYTES, CONFIG_DEPTH, type Config, type ConfigValue } from "../../../src/base/config-value.js";
import {
  CONFIG_TYPES,
  type ConfigType,
  parseConfig,
  writeConfig,
} from "../../../src/protocols/scale0/config-formats.js";
import { readXml } from "../../../src/protocols/scale0/config-xml.js";

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

describe("a config", () => {
  it.each(CONFIG_TYPES)("comes back from %s as it was", async (type) => {
    await fc.assert(
      fc.asyncProperty(config, fc.nat(), async (given, version) => {
        deepStrictEqual(await parseConfig(type, await writeConfig(type, given, version)), given);
      }),
      { numRuns: 500 },
    );
  });

  it("goes through all formats, one after the other, unchanged, and is written the same again", async () => {
    await fc.assert(
      fc.asyncProperty(config, fc.shuffledSubarray([...CONFIG_TYPES], { minLength: 3 }), async (given, order) => {
        let current = given;
        for (const type of order) current = await parseConfig(type, await writeConfig(type, current, 7));
        deepStrictEqual(current, given);
        for (const type of order) expect(await writeConfig(type, current, 7)).toBe(await writeConfig(type, given, 7));
      }),
      { numRuns: 200 },
    );
  });

  it.each(CONFIG_TYPES)("may be as deep in %s as anywhere", async (type) => {
    for (const deepest of [nested(CONFIG_DEPTH), { a: listed(CONFIG_DEPTH - 1) }] as Config[]) {
      deepStrictEqual(await parseConfig(type, await writeConfig(type, deepest, 1)), deepest);
    }
  });

  it("survives as bytes of UTF-8", async () => {
    await fc.assert(
      fc.asyncProperty(config, fc.constantFrom(...CONFIG_TYPES), async (given, type) => {
        const bytes = Buffer.from(await writeConfig(type, given, 1));
        deepStrictEqual(await parseConfig(type, bytes.toString()), given);
      }),
      { numRuns: 200 },
    );
  });
});

const nested = (depth: number): Config | number => (depth === 0 ? 1 : { a: nested(depth - 1) });
const listed = (depth: number): ConfigValue => (depth === 0 ? 1 : [listed(depth - 1)]);

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
  it("is XML that a person would write", async () => {
    expect(await writeConfig("XML", EXAMPLE, 3)).toMatchInlineSnapshot(`
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

  it("is ZFL that a person would write", async () => {
    expect(await writeConfig("ZFL", EXAMPLE, 3)).toMatchInlineSnapshot(`
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

  it("has its version in XML", async () => {
    expect(readXml(await writeConfig("XML", EXAMPLE, 42)).version).toBe(42);
  });
});

describe("what people write", () => {
  it("may be ZFL with comments, blank lines and values without quotes", async () => {
    const zfl = [
      "# a comment",
      "",
      "heartbeat_interval = 5000   # milliseconds",
      "greeting = hello there, world",
      'hash = "#2"',
      "environment",
      "    LANG = C.UTF-8",
      "    # another",
      "    EMPTY = ''",
      "services = a",
      "services = b",
      "    ",
      "# a list of one",
      "brokers",
      "    identity = east",
      "    # a list of one",
      "",
      "    services = a",
      "tags",
      "    $item = big",
      "",
    ].join("\r\n");
    expect(await parseConfig("ZFL", zfl)).toEqual({
      heartbeat_interval: 5000,
      greeting: "hello there, world",
      hash: "#2",
      environment: { LANG: "C.UTF-8", EMPTY: "" },
      services: ["a", "b"],
      brokers: [{ identity: "east", services: "a" }],
      tags: ["big"],
    });
  });

  it("may be XML with a declaration, comments, CDATA and entities", async () => {
    const xml = `<?xml version="1.0" encoding="UTF-8"?>
      <config version="1">
        <!-- a comment -->
        <a>&lt;x&gt; &amp; &#65;&#x42;</a>
        <b><![CDATA[<raw> &amp; ]]></b>
        <slots> 4 </slots>
        <c>1</c><d/><c>2</c>
      </config>`;
    expect(await parseConfig("XML", xml)).toEqual({ a: "<x> & AB", b: "<raw> &amp; ", slots: " 4 ", c: [1, 2], d: "" });
  });
});

const LAUGHS = `<!DOCTYPE config [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><config><x>&b;</x></config>`;
const FILE = `<!DOCTYPE config [<!ENTITY f SYSTEM "file:///etc/passwd">]><config><x>&f;</x></config>`;

describe("hostile input is refused", () => {
  const refused: readonly (readonly [string, ConfigType, string, RegExp])[] = [
    ["entities that grow", "XML", LAUGHS, /document type/],
    ["entities that read files", "XML", FILE, /document type/],
    ["a document type in small letters", "XML", "<!doctype config><config/>", /document type/],
    ["entities nobody declared", "XML", "<config><x>&b;</x></config>", /entity/],
    ["half a character by number", "XML", "<config><x>&#xD800;</x></config>", /entity/],
    ["NUL by number", "XML", "<config><x>&#0;</x></config>", /entity/],
    ["XML that is too deep", "XML", `<config>${"<a>".repeat(5_000)}${"</a>".repeat(5_000)}</config>`, /config: /],
    ["XML that is too long", "XML", `<config><a>${"x".repeat(CONFIG_BYTES)}</a></config>`, /bytes/],
    ["XML with too many elements", "XML", `<config>${"<a/>".repeat(20_000)}</config>`, /values/],
    ["elements that do not end", "XML", "<config><a></config>", /line 1/],
    ["another root", "XML", "<settings/>", /<config>/],
    ["two roots", "XML", "<config/><config/>", /config: /],
    ["text between elements", "XML", "<config>x<a/></config>", /between elements/],
    ["no XML at all", "XML", "{}", /config: /],
    ["nothing as XML", "XML", "", /config: /],
    [
      "ZFL that is too deep",
      "ZFL",
      Array.from({ length: 200 }, (_, i) => `${" ".repeat(4 * i)}a`).join("\n"),
      /levels/,
    ],
    ["ZFL that is too long", "ZFL", `a = ${"x".repeat(CONFIG_BYTES)}`, /bytes/],
    ["ZFL below a value", "ZFL", "a = 1\n    b = 2", /line 2/],
    ["ZFL indented by two", "ZFL", "a\n  b = 2", /line 2/],
    ["ZFL indented by a tab", "ZFL", "a\n\tb = 2", /line 2/],
    ["a quote that does not end", "ZFL", 'a = "b', /line 1/],
    ["quotes in quotes", "ZFL", 'a = "b"c"', /line 1/],
    ["an item beside names", "ZFL", "a\n    b = 1\n    $item = 2", /line 3/],
    ["JSON that is cut", "JSON", '{"a":', /JSON/],
    ["JSON that is no object", "JSON", "[1]", /names/],
    ["JSON that is too deep", "JSON", JSON.stringify(nested(CONFIG_DEPTH + 1)), /levels/],
    ["JSON that is far too deep", "JSON", `${"[".repeat(100_000)}${"]".repeat(100_000)}`, /config: /],
  ];

  it.each(refused)("%s", async (_what, type, given, why) => {
    await expect(parseConfig(type, given)).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
      message: expect.stringMatching(why),
    });
  });

  it("whatever the text is, with a coded error and nothing else", async () => {
    const parts = fc.constantFrom(
      ...[
        "<config>",
        "</config>",
        "<a",
        ">",
        "/>",
        "</a>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?",
        "?>",
        "&",
        "&#",
        ";",
        '"',
        "'",
        "=",
      ],
      ...["a", "    ", "\n", "#", "$item", "[]", "\\", "{", "}", "[", "]", ",", ":", "1"],
    );
    const broken = fc.array(parts, { maxLength: 30 }).map((all) => all.join(""));
    await fc.assert(
      fc.asyncProperty(broken, fc.constantFrom(...CONFIG_TYPES), async (given, type) => {
        for (const one of [given, `<config>${given}</config>`]) {
          const outcome = await parseConfig(type, one).catch((cause: { code?: string }) => cause.code);
          expect(typeof outcome === "object" || outcome === "LABORO_BAD_INPUT").toBe(true);
        }
      }),
      { numRuns: 1_000 },
    );
  });
});
