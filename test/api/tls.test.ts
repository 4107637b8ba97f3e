import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { connect as connectPlain } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { describe, expect, it } from "vitest";
import { joinUrl } from "../../src/base/addresses.js";
import { Certificates } from "../../src/broker/access/certificates.js";
import { connect } from "../../src/entries/client.js";
import { parseJoinUrls } from "../../src/protocols/laboro/broker-address.js";
import { ask, codeOf, openListener } from "./kit.js";

/** An address of this machine that others could reach, if it has one. */
const outside = Object.values(networkInterfaces())
  .flat()
  .find((one) => one !== undefined && !one.internal && one.family === "IPv4")?.address;

const caOf = (dir: string): string => readFileSync(join(dir, "ca.pem"), "utf8");

describe("one port", () => {
  it("answers HTTP and HTTPS, and makes no certificate before it is needed", async () => {
    const { broker, dir } = await openListener();
    expect(broker.url).toMatch(/^http:/);
    expect((await ask(`${broker.url}/healthz`)).status).toBe(200);
    expect(existsSync(join(dir, "certificates.json"))).toBe(false);
    const { port } = new URL(broker.url);
    await new Promise((resolve) =>
      connectTls({ port: Number(port), rejectUnauthorized: false }, () => resolve(undefined)).on("close", resolve),
    );
    const secure = `https://127.0.0.1:${port}`;
    const answer = await ask(`${secure}/api/v1/status`, { token: broker.token, ca: caOf(dir) });
    expect(answer.status).toBe(200);
    const named = await ask(`https://localhost:${port}/healthz`, { ca: caOf(dir) });
    expect(named.text).toBe("ok\n");
    expect((await ask(`${broker.url}/api/v1/status`, { token: broker.token })).status).toBe(200);
    expect(statSync(join(dir, "certificates.json")).mode & 0o777).toBe(0o600);
  });

  it("takes a link with TLS, held to the CA of its join URL", async () => {
    const { broker } = await openListener({ tls: "on" });
    expect(broker.url).toMatch(/^https:/);
    const { urls, token, caFingerprint } = parseJoinUrls(broker.joinUrl("client"), "the broker");
    expect([urls, caFingerprint]).toEqual([[broker.url], broker.ca]);
    const client = await connect({ broker: urls, token, caFingerprint });
    expect(await client.ask("status", {})).toMatchObject({ epoch: 1 });
    client.close();
    const wrong = connect({ broker: urls, token, caFingerprint: "0".repeat(64), connectTimeoutMs: 2_000 });
    await expect(wrong).rejects.toMatchObject({ code: "LABORO_BAD_CERTIFICATE" });
  });

  it("sends away who speaks neither, and who says nothing of TLS that holds", async () => {
    const { broker } = await openListener();
    const port = Number(new URL(broker.url).port);
    for (const bytes of [
      Buffer.from([0x16, 3, 1, 0xff, 0xff, 9, 9]),
      Buffer.from("\0\0\0\0\r\n\r\n"),
      Buffer.alloc(100_000, 0x16),
    ]) {
      await new Promise<void>((resolve) => {
        const socket = connectPlain(port, "127.0.0.1", () => socket.end(bytes));
        socket.on("error", () => {});
        socket.on("close", () => resolve());
        socket.resume();
      });
    }
    expect((await ask(`${broker.url}/healthz`)).status).toBe(200);
  });

  it("without TLS answers to names of this machine only", async () => {
    const { broker } = await openListener();
    for (const host of [
      "evil.example",
      "127.0.0.1.evil.example",
      "10.0.0.1",
      "localhost.evil",
      "evillocalhost",
      "127.0.0.1:80:80",
    ]) {
      const answer = await ask(`${broker.url}/api/v1/status`, { token: broker.token, headers: { host } });
      expect([host, answer.status]).toEqual([host, 421]);
    }
    for (const host of ["localhost", "127.0.0.1", "[::1]:99", "laboro.localhost:5429"]) {
      expect((await ask(`${broker.url}/api/v1/status`, { token: broker.token, headers: { host } })).status).toBe(200);
    }
  });
});

describe.skipIf(outside === undefined)("an address that others can reach (needs one besides loopback)", () => {
  it("has TLS and a token always, and refuses plain HTTP from elsewhere", async () => {
    const { broker, dir } = await openListener({ host: "0.0.0.0", advertise: ["broker.example", outside ?? ""] });
    expect(broker.url).toMatch(/^https:\/\/broker\.example:/);
    const { port } = new URL(broker.url);
    const plain = await ask(`http://${outside}:${port}/api/v1/status`, { token: broker.token });
    expect([plain.status, codeOf(plain)]).toEqual([403, "LABORO_FORBIDDEN"]);
    const page = await ask(`http://${outside}:${port}/`);
    expect(page.status).toBe(403);
    const local = await ask(`http://127.0.0.1:${port}/api/v1/status`, { token: broker.token });
    expect(local.status).toBe(200);
    const secure = await ask(`https://${outside}:${port}/api/v1/status`, { token: broker.token, ca: caOf(dir) });
    expect(secure.status).toBe(200);
    const access = JSON.parse(readFileSync(join(dir, "access.json"), "utf8")) as object;
    expect(access).toEqual({ url: broker.url, token: broker.token, ca: broker.ca });
  });

  it("is not opened without TLS", async () => {
    await expect(openListener({ host: "0.0.0.0", tls: "off" })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });
});

describe("certificates", () => {
  it("are kept; the broker's own is made again before it expires or for other names, the CA stays", async () => {
    const { dir } = await openListener();
    const first = new Certificates(dir, ["a.example"]);
    const ca = await first.fingerprint();
    const shown = await first.serverCertificate();
    expect(await first.serverCertificate()).toBe(shown);
    const again = new Certificates(dir, ["a.example"]);
    expect(await again.serverCertificate()).toEqual(shown);
    const certificate = new X509Certificate(shown.cert);
    expect(certificate.checkHost("a.example")).toBe("a.example");
    expect(certificate.checkIP("127.0.0.1")).toBe("127.0.0.1");
    expect(certificate.checkHost("b.example")).toBeUndefined();

    const renamed = new Certificates(dir, ["b.example"]);
    expect(new X509Certificate((await renamed.serverCertificate()).cert).checkHost("b.example")).toBe("b.example");
    expect(await renamed.fingerprint()).toBe(ca);

    const inAYear = Date.now() + 370 * 86_400_000;
    const later = new Certificates(dir, ["b.example"], () => inAYear);
    const renewed = new X509Certificate((await later.serverCertificate()).cert);
    expect(Date.parse(renewed.validTo)).toBeGreaterThan(inAYear + 300 * 86_400_000);
    expect(await later.fingerprint()).toBe(ca);
  });

  it("are named in a join URL that can be read back", () => {
    const joining = { url: "https://[::1]:5429", token: "a/b c@d", ca: "ab".repeat(32) };
    expect(parseJoinUrls(joinUrl(joining), "x")).toEqual({
      urls: [joining.url],
      token: joining.token,
      caFingerprint: joining.ca,
      source: "x",
    });
    const plain = joinUrl({ url: "http://127.0.0.1:5429", token: "t" });
    expect(parseJoinUrls(plain, "x")).toEqual({ urls: ["http://127.0.0.1:5429"], token: "t", source: "x" });
  });
});
