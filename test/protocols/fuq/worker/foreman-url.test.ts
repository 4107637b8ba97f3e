import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { resolveForemanUrl } from "../../../../src/protocols/fuq/worker/foreman-url.js";
import { parseAddress } from "../../../../src/protocols/fuq/worker/tcp.js";
import { Yard } from "./kit.js";

const FINGERPRINT = "ab".repeat(32);

describe("where a foreman is", () => {
  it("is read from a URL with password and fingerprint, in whichever form", () => {
    const found = resolveForemanUrl({
      fuq: `https://pass%2Fword%2B@foreman.example:7000#${FINGERPRINT.toUpperCase()}`,
      env: {},
    });
    expect(found).toMatchObject({ password: "pass/word+", fingerprint: FINGERPRINT });
    expect(found.url.href).toBe("https://foreman.example:7000/");
    expect(resolveForemanUrl({ fuq: "https://secret@foreman.example", env: {} }).url.port).toBe("5429");
    expect(resolveForemanUrl({ fuq: "https://secret@foreman.example:443", env: {} }).url.port).toBe("");
    expect(resolveForemanUrl({ fuq: "http://secret@[::1]:80", env: {} }).url.hostname).toBe("[::1]");
  });

  it("is read from files, and the password from the environment", () => {
    const yard = new Yard();
    writeFileSync(yard.path("url"), "https://foreman.example\n");
    writeFileSync(yard.path("password"), "secret\n");
    writeFileSync(yard.path("ca"), "CERTIFICATE");
    const env = { LABORO_FUQ_TOKEN: `@${yard.path("password")}` };
    const found = resolveForemanUrl({ fuq: `@${yard.path("url")}`, ca: yard.path("ca"), certificateName: "fuq", env });
    expect(found).toMatchObject({ password: "secret", ca: "CERTIFICATE", certificateName: "fuq" });
  });

  it.each([
    ["nonsense", /expected https/],
    ["ftp://secret@foreman.example", /expected https/],
    ["https://foreman.example", /password is missing/],
    ["https://secret@foreman.example#12", /no SHA-256 fingerprint/],
    ["http://secret@foreman.example", /in the clear/],
    ["@/nowhere/at/all", /cannot be read/],
  ])("refuses %s, without a word of the password", (fuq, why) => {
    expect(() => resolveForemanUrl({ fuq, env: {} })).toThrow(why);
    expect(() => resolveForemanUrl({ fuq, env: {} })).toThrow(/^(?!.*secret)/);
  });

  it("is an address for a raw stream", () => {
    expect(parseAddress("localhost:5430", "--fuq-raw")).toEqual({ host: "localhost", port: 5430 });
    expect(parseAddress("[::1]:5430", "--fuq-raw")).toEqual({ host: "::1", port: 5430 });
    for (const text of ["localhost", ":5430", "localhost:99999", "::1:5430", "tcp://a:1"]) {
      expect(() => parseAddress(text, "--fuq-raw")).toThrow(/expected HOST:PORT/);
    }
  });
});
