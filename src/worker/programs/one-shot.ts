/**
 * A program that is started for each call: the body is its standard input, its standard output is the reply. It runs in slot
 * shells as tasks do, but not in the shells of tasks: the broker counts slots, it does not know which shell is busy.
 */
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LaboroError } from "../../base/errors.js";
import { REPLY_LIMIT } from "../calls.js";
import type { SlotShell } from "../processes/index.js";
import type { Answer } from "../services.js";
import type { ObjectPool } from "./object-pool.js";
import { describeEnd, StderrTail } from "./stderr-tail.js";

export type ProgramHandler = (body: Uint8Array, call: { readonly signal: AbortSignal }) => Promise<Answer>;

export interface OneShotOptions {
  readonly service: string;
  readonly command: string;
  readonly shells: ObjectPool<SlotShell>;
  /** For the bodies of active calls. */
  readonly dir: string;
  readonly graceMs: number;
}

let files = 0;

export function oneShot(options: OneShotOptions): ProgramHandler {
  return async (body, { signal }) => {
    const shell = await options.shells.acquire(signal);
    const file = body.length === 0 ? undefined : join(options.dir, `body${++files}`);
    try {
      if (file !== undefined) writeFileSync(file, body, { mode: 0o600 });
      return await run(options, shell, file, signal);
    } finally {
      options.shells.release(shell);
      if (file !== undefined) rmSync(file, { force: true });
    }
  };
}

function run(
  options: OneShotOptions,
  shell: SlotShell,
  file: string | undefined,
  signal: AbortSignal,
): Promise<Buffer> {
  const { service, command, graceMs } = options;
  return new Promise((resolve, reject) => {
    const reply: Buffer[] = [];
    const tail = new StderrTail();
    let length = 0;
    const spec = {
      argv: ["/bin/sh", "-c", command],
      env: { LABORO_SERVICE: service },
      ...(file === undefined ? {} : { stdinFile: file }),
    };
    const running = shell.run(spec, {
      output: (stream, bytes) => {
        if (stream === "stdout") length += bytes.length;
        if (stream === "stderr") tail.push(bytes);
        else if (length <= REPLY_LIMIT) reply.push(bytes);
        else running.kill();
      },
      ended: (end) => {
        signal.removeEventListener("abort", stop);
        if (length > REPLY_LIMIT) {
          reject(
            new LaboroError("LABORO_BODY_TOO_LARGE", `the reply of ${service} is larger than ${REPLY_LIMIT} bytes`),
          );
        } else if (end.code === 0 && !signal.aborted) resolve(Buffer.concat(reply));
        else reject(new LaboroError("LABORO_SERVICE_FAILED", tail.text || describeEnd(service, end)));
      },
    });
    const stop = (): void => (graceMs > 0 ? running.terminate(graceMs) : running.kill());
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
