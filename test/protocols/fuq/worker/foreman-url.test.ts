import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseAddress, resolveForemanUrl } from "../../../../src/protocols/fuq/worker/foreman-http.js";
import { Yard } from "./kit.js";

const FINGERPRINT = "ab".repeat(32);

/** Not as an argument: those can be read by everyone. */
function inFile(url: string): ReturnType<typeof resolveForemanUrl> {
  const file = new Yard().path("url");
  writeFileSync(file, url);
  return resolveForemanUrl({ fuq: `@${file}`, env: {} });
}

describe("where a foreman is", () => {
  it("is read from a URL with password and fingerprint, in whichever form", () => {
    const found = inFile(`https://pass%2Fword%2B@foreman.example:7000#${FINGERPRINT.toUpperCase()}`);
    expect(found).toMatchObject({ password: "pass/word+", fingerprint: FINGERPRINT });
    expect(found.url.href).toBe("https://foreman.example:7000/");
    expect(inFile("https://secret@foreman.example").url.port).toBe("5429");
    expect(inFile("https://secret@foreman.example:443").url.port).toBe("");
    expect(inFile("http://secret@[::1]:80").url.hostname).toBe("[::1]");
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
    ["https://foreman.example#12", /expected a SHA-256 fingerprint/, "secret"],
    ["http://foreman.example", /unencrypted/, "secret"],
    ["https://secret@foreman.example", /password in an argument/],
    ["https://:secret@foreman.example", /password in an argument/],
    ["@/nowhere/at/all", /cannot be read/],
  ])("refuses %s, without a word of the password", (fuq, why, LABORO_FUQ_TOKEN?: string) => {
    const env = LABORO_FUQ_TOKEN === undefined ? {} : { LABORO_FUQ_TOKEN };
    expect(() => resolveForemanUrl({ fuq, env })).toThrow(why);
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
