import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Certificates } from "../../../src/broker/access/certificates.js";
import { checkPostgres } from "../../../src/cli/verbs/doctor/postgres.js";
import { type PostgresServer, startPostgres } from "../../support/postgres.js";

let dir: string;
let server: PostgresServer;
let url: string;

beforeAll(async () => {
  dir = fs.mkdtempSync(join(tmpdir(), "laboro-database-ca-"));
  fs.chmodSync(dir, 0o755);
  const { cert, key } = await new Certificates(dir, []).serverCertificate();
  const files = { ssl_cert_file: join(dir, "server.crt"), ssl_key_file: join(dir, "server.key") };
  fs.writeFileSync(files.ssl_cert_file, cert, { mode: 0o644 });
  fs.writeFileSync(files.ssl_key_file, key, { mode: 0o600 });
  // Started by root, the server runs as nobody.
  if (process.getuid?.() === 0) fs.chownSync(files.ssl_key_file, 65_534, 65_534);
  server = await startPostgres({ ssl: "on", ...files });
  url = (await server.database()).replace("127.0.0.1", "localhost");
});
afterAll(async () => {
  await server.remove();
  fs.rmSync(dir, { recursive: true });
});

const first = async (parameters: string): Promise<string> => {
  const [check] = await checkPostgres(`${url}?${parameters}`);
  return `${check?.state} ${check?.message}; ${check?.remedy}`;
};

describe("the certificate of the database", () => {
  it("has to come from the CA that the address names", async () => {
    expect(await first("sslmode=verify-full")).toMatch(/^FAIL .*certificate.*; name the CA that has signed it/);
    expect(await first(`sslmode=verify-full&sslrootcert=${join(dir, "ca.pem")}`)).toMatch(/^ok PostgreSQL/);
    expect(await first(`sslmode=require&sslrootcert=${join(dir, "ca.pem")}`)).toMatch(/^ok PostgreSQL/);
    const other = join(dir, "other");
    fs.mkdirSync(other);
    await new Certificates(other, []).fingerprint();
    expect(await first(`sslmode=require&sslrootcert=${join(other, "ca.pem")}`)).toMatch(/^FAIL .*certificate/);
    expect(await first(`sslrootcert=${join(dir, "none")}`)).toMatch(/^FAIL sslrootcert: .*none cannot be read/);
  });
});
