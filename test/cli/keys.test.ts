import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { readCurveKeys, readPeerKeys } from "../../src/broker/access/curve-keys.js";
import { laboro, type Said } from "./support/cli.js";

function place(): { dir: string; keys: (...args: string[]) => Promise<Said> } {
  const dir = mkdtempSync(join(tmpdir(), "laboro-keys-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const data = join(dir, "data");
  return { dir: data, keys: (...args) => laboro(["keys", ...args], { env: { LABORO_DATA: data } }) };
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;

describe("laboro keys", () => {
  it("makes the broker's pair and those of peers, for their owners' eyes only", async () => {
    const { dir, keys } = place();
    const none = await keys("list");
    expect([none.code, none.stderr]).toEqual([2, expect.stringContaining("laboro keys new")]);
    const { stdout: key } = await keys("new");
    expect(key).toMatch(/^\S{40}\n$/);
    expect((await keys("show")).stdout).toBe(key);
    const made = await keys("new", "node17");
    const file = join(dir, "keys", "node17.json");
    expect(made).toEqual({ code: 0, stdout: `${file}\n`, stderr: "" });
    expect([modeOf(file), modeOf(join(dir, "curve.json")), modeOf(join(dir, "keys"))]).toEqual([0o600, 0o600, 0o700]);
    const peer = readPeerKeys(file);
    expect(peer.serverKey).toBe(key.trim());
    expect(readCurveKeys(dir)).toMatchObject({ publicKey: key.trim(), known: [peer.publicKey] });
    expect((await keys("show", "node17")).stdout).toBe(`${peer.publicKey}\n`);
    expect(
      (await keys()).stdout
        .trim()
        .split("\n")
        .map((line) => line.split(/ +/)[0]),
    ).toEqual(["NAME", "broker", "node17"]);
    const listed = await keys("--json");
    expect(JSON.parse(listed.stdout)).toEqual({
      broker: key.trim(),
      allowed: [{ name: "node17", key: peer.publicKey }],
    });
    const secret = readCurveKeys(dir).secretKey;
    expect(listed.stdout + made.stdout).not.toContain(secret);
  });

  it("lets in whose key is given, and shuts out again", async () => {
    const { dir, keys } = place();
    const key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    expect((await keys("allow", "alice", key)).stdout).toContain("alice may connect");
    expect(readCurveKeys(dir).known).toEqual([key]);
    expect((await keys("allow", "alice", key)).code).toBe(2);
    expect((await keys("deny", "alise")).stderr).toContain("did you mean alice?");
    expect((await keys("deny", "alice")).stdout).toBe("alice may no longer connect\n");
    expect(readCurveKeys(dir).known).toEqual([]);
  });

  it("refuses what is no key, and to make the broker's again", async () => {
    const { dir, keys } = place();
    const before = (await keys("new")).stdout;
    for (const args of [
      ["new"],
      ["allow", "bob"],
      ["allow", "bob", "short"],
      ["allow", "../bob", "x".repeat(40)],
      ["show", "bob"],
      ["frob"],
    ]) {
      expect([args, (await keys(...args)).code]).toEqual([args, 2]);
    }
    expect((await keys("show")).stdout).toBe(before);
    writeFileSync(join(dir, "curve.json"), readFileSync(join(dir, "curve.json"), "utf8").slice(0, 50));
    expect((await keys("list")).stderr).toContain("LABORO_DATA_CORRUPT");
  });
});
