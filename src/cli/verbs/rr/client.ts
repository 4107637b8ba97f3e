/** `laboro rr client`: a console that asks, once or in bulk. */
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { RoundRobinClient } from "../../../protocols/round-robin/worker/client.js";
import { testDataError } from "../../../protocols/round-robin/worker/test-data.js";
import type { CurveClient } from "../../../protocols/zeromq/index.js";
import { ConsoleOutput, commandList, runConsole } from "./console.js";

export interface ClientConsoleOptions {
  readonly url: string;
  readonly level: number;
  readonly script?: string | undefined;
  readonly curve?: CurveClient | undefined;
}

/** Of a bulk test, in flight at a time. */
const PARALLEL = 10;
/** Bytes that a STREAM asks for. */
const STREAM_SIZE = 1024;
/** Progress is marked so often in a bulk test, or at each one of fewer. */
const MARKS = 100;

export async function runClientConsole({ url, level, script, curve }: ClientConsoleOptions): Promise<number> {
  const output = new ConsoleOutput("CLIENT", level);
  const client = await RoundRobinClient.open({ url, curve });

  const stream = async (): Promise<void> => {
    const fault = testDataError(await client.stream(STREAM_SIZE), STREAM_SIZE);
    if (fault !== undefined) throw new LaboroError("LABORO_SERVICE_FAILED", `the stream has ${fault}`);
  };

  const commands = {
    ping: {
      run: async () => {
        await client.ping();
        output.log(1, "EXEC PING was sent");
      },
    },
    pingt: {
      run: async () => {
        const worker = await client.pingTracked();
        output.log(1, `TRACKEXEC PING was answered by ${worker}`);
      },
    },
    data: {
      run: async () => {
        await stream();
        output.log(1, `STREAM: all ${STREAM_SIZE} bytes have come`);
      },
    },
    bulkping: { takes: "N", run: (count: number) => bulk("PING", count, () => client.pingTracked(), output) },
    bulkdata: { takes: "N", run: (count: number) => bulk("STREAM", count, stream, output) },
  } as const;
  output.log(1, `for the server at ${url}; commands: ${commandList(commands)}`);
  await runConsole({ commands, output, script });
  await client.close();
  output.log(1, "finished");
  return output.failures;
}

/** Ten at a time, with progress lines and a summary. Stops when the server cannot be reached. */
async function bulk(name: string, count: number, one: () => Promise<unknown>, output: ConsoleOutput): Promise<void> {
  let begun = 0;
  let ended = 0;
  let succeeded = 0;
  let reachable = true;
  const every = Math.max(1, Math.ceil(count / MARKS));
  const sendNext = async (): Promise<void> => {
    while (begun < count && reachable) {
      begun++;
      await one().then(
        () => succeeded++,
        (cause: unknown) => {
          output.fail(cause);
          if (asLaboroError(cause).code === "LABORO_BROKER_UNREACHABLE") reachable = false;
        },
      );
      ended++;
      if (ended % every === 0 || ended === count) output.log(1, `${name} ${ended} of ${count} completed`);
    }
  };
  output.log(1, `${count} ${name} tests, up to ${PARALLEL} in flight`);
  await Promise.all(Array.from({ length: Math.min(PARALLEL, count) }, sendNext));
  const row = (...cells: readonly string[]): string =>
    `${(cells[0] ?? "").padEnd(8)}${(cells[1] ?? "").padStart(10)}${(cells[2] ?? "").padStart(12)}`;
  output.print(row("TYPE", "SENT", "SUCCEEDED"), row(name, String(begun), String(succeeded)));
}
