/** `laboro worker --fuq`, `--fuq-raw`, `--fuq1`: a worker for a foreman of fuq. */
import { badInput, type LaboroError } from "../../../base/errors.js";
import { resolveForemanUrl } from "../../../protocols/fuq/worker/foreman-url.js";
import { type ForemanEndpoint, startFuqWorker } from "../../../protocols/fuq/worker/index.js";
import { parseAddress } from "../../../protocols/fuq/worker/tcp.js";
import { logger, onStopSignal } from "../../lib/long-running.js";
import { printLines, printNotice } from "../../lib/print.js";

export interface FuqOptions {
  readonly fuq?: string;
  readonly fuqPoll?: boolean;
  readonly fuqCa?: string;
  readonly fuqCertName?: string;
  readonly fuqRaw?: string;
  readonly fuq1?: string;
}

export interface FuqWorkerSettings extends FuqOptions {
  readonly name: string;
  readonly dir: string;
  readonly slots: number;
  readonly tag: readonly string[];
  readonly wait: boolean;
  readonly cancelGrace?: number;
}

export function runFuqWorker(options: FuqWorkerSettings): void {
  const { name, dir, slots, tag, wait, cancelGrace } = options;
  const exitWith = (why: string, code: number): void => {
    printLines(`worker ${name} has stopped: ${why}`);
    process.exit(code);
  };
  const stopWith = ({ message, code }: LaboroError): void => {
    void worker.stop().then(() => exitWith(`${message} (${code})`, 3));
  };
  let everJoined = false;
  /** Reported that the foreman does not answer, since it last did. */
  let reportedUnreachable = false;
  const worker = startFuqWorker({
    endpoint: parseForeman(options),
    ...{ slots, dir },
    node: name,
    tags: tag,
    log: logger(),
    ...(cancelGrace === undefined ? {} : { cancelGraceMs: cancelGrace }),
    onJoined: () => {
      everJoined = true;
      reportedUnreachable = false;
    },
    onRefused: stopWith,
    onUnreachable: (error) => {
      if (!wait && !everJoined) {
        stopWith(error);
        return;
      }
      if (!reportedUnreachable) printNotice(`${error.message}; it is tried again until it answers`);
      reportedUnreachable = true;
    },
    onStopped: () => exitWith("the foreman asked for it", 0),
  });
  onStopSignal((signal) => {
    void worker.stop({ finish: true }).then(() => exitWith(`${signal} came`, 0));
  });
}

function parseForeman({ fuq, fuqPoll, fuqCa, fuqCertName, fuqRaw, fuq1 }: FuqOptions): ForemanEndpoint {
  if ([fuq, fuqRaw, fuq1].filter((given) => given !== undefined).length !== 1) {
    throw badInput("a worker has one foreman: --fuq, --fuq-raw or --fuq1");
  }
  if (fuqRaw !== undefined) return { by: "raw", address: parseAddress(fuqRaw, "--fuq-raw") };
  if (fuq1 !== undefined) return { by: "v1", address: parseAddress(fuq1, "--fuq1") };
  const foreman = resolveForemanUrl({ fuq: fuq ?? "", ca: fuqCa, certificateName: fuqCertName });
  return { by: fuqPoll === true ? "polling" : "websocket", foreman };
}
