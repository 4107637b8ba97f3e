import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findBroker } from "../../src/client/find-broker.js";
import { parseJoinUrls } from "../../src/protocols/laboro/broker-address.js";

const FINGERPRINT = "0123456789abcdef".repeat(4);
const bad = { code: "LABORO_BAD_INPUT" };
let dir: string;

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-find-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function access(name: string, content: string): string {
  const data = mkdtempSync(join(dir, `${name}-`));
  writeFileSync(join(data, "access.json"), content);
  return data;
}

describe("a join URL", () => {
  it("names broker, token and CA", () => {
    expect(parseJoinUrls(`https://tok@node1:5429#${FINGERPRINT}`, "x")).toEqual({
      urls: ["https://node1:5429"],
      token: "tok",
      caFingerprint: FINGERPRINT,
      source: "x",
    });
  });

  it("takes the fingerprint as openssl prints it, and a token with any characters", () => {
    const colons = (FINGERPRINT.toUpperCase().match(/../g) ?? []).join(":");
    const found = parseJoinUrls(`https://a%2Fb%40c@[2001:db8::1]:5429/#${colons}`, "x");
    expect(found).toMatchObject({ urls: ["https://[2001:db8::1]:5429"], token: "a/b@c", caFingerprint: FINGERPRINT });
  });

  it("may name the brokers of a group", () => {
    const text = `https://t@a:1#${FINGERPRINT}, https://t@b:2#${FINGERPRINT}\n`;
    expect(parseJoinUrls(text, "x").urls).toEqual(["https://a:1", "https://b:2"]);
    expect(() => parseJoinUrls("https://t@a:1 https://u@b:2", "x")).toThrow(expect.objectContaining(bad));
  });

  it.each([
    "",
    "node1:5429",
    "ftp://t@a",
    "https://",
    "https://a:1",
    `https://t@a:1#${FINGERPRINT}0`,
    "https://t@a:99999",
  ])("is not %j", (text) => {
    expect(() => parseJoinUrls(text, "x")).toThrow(expect.objectContaining(bad));
  });

  it("sends no token in the clear, except on this machine", () => {
    for (const host of ["127.0.0.1:1", "localhost:1", "[::1]:1"]) {
      expect(parseJoinUrls(`http://t@${host}`, "x").urls).toEqual([`http://${host}`]);
    }
    expect(() => parseJoinUrls("http://t@node1:5429", "x")).toThrow(/use https/);
  });

  it("does not put the token into its complaints", () => {
    for (const text of ["http://hushhush@node1", "https://hushhush@a#12", "hushhush@a"]) {
      expect(() => parseJoinUrls(text, "x")).toThrow(
        expect.not.objectContaining({ message: expect.stringContaining("hush") }),
      );
    }
  });
});

describe("the broker is found", () => {
  const env = { LABORO_BROKER: "http://env@127.0.0.1:2" };

  it("by what was given first, then the environment, then the default access.json", () => {
    const data = access("all", JSON.stringify({ url: "http://127.0.0.1:3", token: "file" }));
    const given = join(dir, "given");
    writeFileSync(given, "http://given@127.0.0.1:1");
    expect(findBroker({ broker: `@${given}`, data, env }).token).toBe("given");
    expect(findBroker({ data, env }).token).toBe("file");
    expect(findBroker({ env: { ...env, LABORO_DATA: data } }).token).toBe("env");
    expect(findBroker({ data, env: {} })).toMatchObject({ urls: ["http://127.0.0.1:3"], token: "file" });
    expect(findBroker({ env: { LABORO_DATA: data } }).token).toBe("file");
  });

  it("in a file, so that no token stands in argv", () => {
    const file = join(dir, "join");
    writeFileSync(file, "http://infile@127.0.0.1:1\n");
    expect(findBroker({ broker: `@${file}`, env }).token).toBe("infile");
    expect(findBroker({ env: { LABORO_BROKER: `@${file}` } }).token).toBe("infile");
    expect(() => findBroker({ broker: "@/nowhere/at/all", env })).toThrow(/cannot be read: there is no such file/);
  });

  it("with the CA of access.json, in a field of its own or in the URL", () => {
    const url = "https://127.0.0.1:3";
    const field = access("field", JSON.stringify({ url, token: "t", ca: FINGERPRINT }));
    const inUrl = access("url", JSON.stringify({ url: `${url}#${FINGERPRINT}`, token: "t" }));
    for (const data of [field, inUrl]) {
      expect(findBroker({ data, env: {} })).toMatchObject({ urls: [url], token: "t", caFingerprint: FINGERPRINT });
    }
    const odd = access("odd", JSON.stringify({ url, token: "t", ca: "12" }));
    expect(() => findBroker({ data: odd, env: {} })).toThrow(expect.objectContaining(bad));
  });

  it("or not, and then it is said what to do", () => {
    const nowhere = { code: "LABORO_BROKER_UNREACHABLE", message: expect.stringMatching(/--broker/) };
    expect(() => findBroker({ data: join(dir, "none"), env: {} })).toThrow(expect.objectContaining(nowhere));
    for (const text of ["{", "[]", "null", '{"url":1}']) {
      expect(() => findBroker({ data: access("odd", text), env: {} })).toThrow(expect.objectContaining(nowhere));
    }
  });
});
