/** Our fuq worker in this process, real commands, and a folder that goes afterwards. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SILENT } from "../../../../src/base/log.js";
import {
  type ForemanEndpoint,
  type FuqWorker,
  type FuqWorkerOptions,
  startFuqWorker,
} from "../../../../src/protocols/fuq/worker/index.js";
import { atEnd } from "../../../support/at-end.js";
import { until } from "../../../support/wait.js";

export interface Started extends FuqWorker {
  /** Undefined while it goes on. */
  readonly outcome: string | undefined;
}

export class Yard {
  readonly dir = mkdtempSync(join(tmpdir(), "laboro-fuq-worker-"));

  constructor() {
    atEnd(() => rmSync(this.dir, { recursive: true, force: true }));
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  script(name: string, text: string): string {
    const file = this.path(name);
    writeFileSync(file, `#!/bin/sh\n${text}\n`);
    chmodSync(file, 0o755);
    return file;
  }

  /** A command that goes on until it is ended, and says as which process. */
  endless(): { readonly command: string; readonly process: () => Promise<number> } {
    const file = this.path("process");
    return {
      command: this.script("endless.sh", `echo $$ > ${file}; exec sleep 1000`),
      process: () => until("it runs", () => (existsSync(file) && Number(readFileSync(file, "utf8"))) || undefined),
    };
  }

  worker(place: ForemanEndpoint, options: Partial<FuqWorkerOptions> = {}): Started {
    let outcome: string | undefined;
    const worker = startFuqWorker({
      endpoint: place,
      slots: 2,
      node: "vm",
      dir: this.path("worker"),
      log: SILENT,
      firstDelayMs: 20,
      onStopped: () => {
        outcome = "stopped";
      },
      onRefused: ({ code }) => {
        outcome = code;
      },
      ...options,
    });
    atEnd(() => worker.stop());
    return {
      get joined() {
        return worker.joined;
      },
      get outcome() {
        return outcome;
      },
      stop: (how) => worker.stop(how),
    };
  }
}

export const raw = (port: number): ForemanEndpoint => ({ by: "raw", address: { host: "127.0.0.1", port } });

export const web = (port: number, password: string): ForemanEndpoint => ({
  by: "websocket",
  foreman: { url: new URL(`http://127.0.0.1:${port}/`), password },
});

/** A line to a port of this machine that can be cut; what comes after the cut gets through again. */
export async function cuttableLine(to: number): Promise<{ readonly port: number; readonly cut: () => void }> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect({ port: to, host: "127.0.0.1" });
    for (const [from, onto] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on("error", () => {});
      from.on("data", (bytes) => onto.write(bytes));
      from.on("end", () => onto.end());
      from.on("close", () => {
        sockets.delete(from);
        onto.destroy();
      });
    }
  });
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    cut();
    return new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, cut };
}
