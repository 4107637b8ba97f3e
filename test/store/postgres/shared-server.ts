/**
 * The server of these tests. The process that runs the test files starts it once, when the first of them asks at the port that is provided:
 * most runs need none, and do not load what it takes either.
 */
import { rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import type { PostgresServer } from "../../support/postgres.js";

declare module "vitest" {
  interface ProvidedContext {
    readonly postgres: number;
  }
}

/** The answer to a connection. */
export type SharedServer = { readonly port: number; readonly template: string } | { readonly error: string };

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let server: PostgresServer | undefined;
  const cluster = join(tmpdir(), `laboro-cluster-${process.pid}`);
  // Processes of tests inherit it.
  process.env.LABORO_TEST_CLUSTER = cluster;
  const start = async (): Promise<SharedServer> => {
    const { startPostgres } = await import("../../support/postgres.js");
    const { migratedTemplate } = await import("./template.js");
    server = await startPostgres({ max_connections: "200" });
    return { port: server.port, template: await migratedTemplate(server) };
  };
  let started: Promise<SharedServer> | undefined;
  const listener = createServer((socket) => {
    socket.on("error", () => {});
    started ??= start().catch((cause: unknown) => ({ error: String(cause) }));
    void started.then((found) => socket.end(JSON.stringify(found)));
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  project.provide("postgres", (listener.address() as AddressInfo).port);
  return async () => {
    listener.close();
    await started;
    await server?.remove();
    rmSync(cluster, { recursive: true, force: true });
  };
}
