import { X509Certificate } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generate } from "selfsigned";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import type { LaboroError } from "../../src/base/errors.js";
import { ClientLink } from "../../src/client/link.js";
import { connect } from "../../src/entries/client.js";
import { parseJoinUrls } from "../../src/protocols/laboro/broker-address.js";
import { encodeFrame } from "../../src/protocols/laboro/codec.js";
import { SERVER_OPTIONS } from "../../src/protocols/laboro/connection.js";
import { startBroker } from "../../src/server.js";
import { startWorker } from "../../src/worker/index.js";

interface Authority {
  readonly key: string;
  readonly cert: string;
  readonly fingerprint: string;
}

interface Chain {
  readonly key: string;
  readonly cert: string;
}

async function authority(name: string): Promise<Authority> {
  const made = await generate([{ name: "commonName", value: name }], {
    keyType: "ec",
    algorithm: "sha256",
    extensions: [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, cRLSign: true, critical: true },
    ],
  });
  return { key: made.private, cert: made.cert, fingerprint: new X509Certificate(made.cert).fingerprint256 };
}

/** A server's certificate, with the CA's behind it. */
async function signedBy(ca: Authority, days = 30): Promise<Chain> {
  const made = await generate([{ name: "commonName", value: "broker" }], {
    keyType: "ec",
    algorithm: "sha256",
    ca: { key: ca.key, cert: ca.cert },
    notAfterDate: new Date(Date.now() + days * 86_400_000),
    notBeforeDate: new Date(Date.now() - 2 * 86_400_000),
    extensions: [
      { name: "basicConstraints", cA: false },
      { name: "subjectAltName", altNames: [{ type: 2, value: "some.other.name" }] },
    ],
  });
  return { key: made.private, cert: `${made.cert}\n${ca.cert}` };
}

let ours: Authority;
let other: Authority;
const servers: Server[] = [];

beforeAll(async () => {
  ours = await authority("ours");
  other = await authority("other");
});

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** Greets every client; remembers the tokens that it was sent. */
async function listen(chain: Chain): Promise<{ url: string; tokens: (string | undefined)[] }> {
  const tokens: (string | undefined)[] = [];
  const server = createServer(chain);
  const sockets = new WebSocketServer(SERVER_OPTIONS);
  server.on("upgrade", (request, socket, head) => {
    tokens.push(request.headers.authorization);
    sockets.handleUpgrade(request, socket, head, (opened) =>
      opened.once("message", () =>
        opened.send(encodeFrame([{ type: "HELLO_ACK", version: 1, broker: "b", heartbeatMs: 1_000 }])),
      ),
    );
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, tokens };
}

async function greeted(url: string, caFingerprint?: string): Promise<void> {
  const link = new ClientLink({ urls: [url], token: "secret", name: "t", connectTimeoutMs: 5_000, caFingerprint });
  await link.ready().finally(() => link.close());
}

describe("an https broker", () => {
  it("is trusted by the fingerprint of its CA alone, whatever name it is reached by", async () => {
    const { url, tokens } = await listen(await signedBy(ours));
    await greeted(url, ours.fingerprint);
    await greeted(url, ours.fingerprint.replaceAll(":", "").toLowerCase());
    await greeted(`${url}#${ours.fingerprint.replaceAll(":", "")}`);
    expect(tokens).toEqual(["Bearer secret", "Bearer secret", "Bearer secret"]);
  });

  it("of another CA is refused at once, and is not sent the token", async () => {
    const { url, tokens } = await listen(await signedBy(other));
    const unseen = await authority("unseen");
    await expect(greeted(url, unseen.fingerprint)).rejects.toMatchObject({
      code: "LABORO_BAD_CERTIFICATE",
      message: expect.stringMatching(/^127\.0\.0\.1:\d+ is not the broker of this join URL/),
    });
    // One whose certificate is known already takes another way.
    await expect(greeted(url, ours.fingerprint)).rejects.toMatchObject({ code: "LABORO_BAD_CERTIFICATE" });
    expect(tokens).toEqual([]);
  });

  it("that only shows the CA's certificate, without having been signed by it, is refused", async () => {
    const { key, cert } = await signedBy(other);
    const [leaf = ""] = cert.split(/(?<=-----END CERTIFICATE-----)\s+/);
    const { url, tokens } = await listen({ key, cert: `${leaf}\n${ours.cert}` });
    await expect(greeted(url, ours.fingerprint)).rejects.toMatchObject({ code: "LABORO_BAD_CERTIFICATE" });
    expect(tokens).toEqual([]);
  });

  it("with an expired certificate is refused", async () => {
    const { url, tokens } = await listen(await signedBy(ours, -1));
    await expect(greeted(url, ours.fingerprint)).rejects.toMatchObject({ code: "LABORO_BAD_CERTIFICATE" });
    expect(tokens).toEqual([]);
  });

  it("without a fingerprint has to satisfy the CAs of the system", async () => {
    const { url, tokens } = await listen(await signedBy(ours));
    await expect(greeted(url)).rejects.toMatchObject({ code: "LABORO_BAD_CERTIFICATE" });
    expect(tokens).toEqual([]);
  });

  it("of another CA refuses a worker that starts", async () => {
    const { url } = await listen(await signedBy(other));
    const refused = await new Promise<LaboroError>((resolve) => {
      const worker = startWorker({
        broker: url,
        token: "secret",
        caFingerprint: ours.fingerprint,
        onRefused: (error) => void worker.stop({ graceMs: 0 }).then(() => resolve(error)),
      });
    });
    expect(refused.code).toBe("LABORO_BAD_CERTIFICATE");
  });

  it("lets in a worker by its join URL", async () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-tls-"));
    const broker = await startBroker({ dir, host: "0.0.0.0", port: 0, advertise: ["127.0.0.1"] });
    const { urls, token, caFingerprint = "" } = parseJoinUrls(broker.joinUrl(), "the test");
    expect(urls).toEqual([expect.stringMatching(/^https:/)]);
    const worker = startWorker({ broker: urls, token, caFingerprint });
    const client = await connect({ broker: broker.url, token: broker.token, caFingerprint });
    const job = await client.submit({ recipe: { kind: "command", argv: ["true"] } });
    expect(await job.wait()).toBe("succeeded");
    client.close();
    await worker.stop();
    await broker.stop();
    rmSync(dir, { recursive: true });
  });
});
