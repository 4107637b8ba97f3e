/** `laboro request`: ask a service. */
import { buffer } from "node:stream/consumers";
import { Command, Option } from "commander";
import { LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, openRunningBroker, withBroker } from "../lib/broker-connection.js";
import { parseDuration } from "../lib/option-parsers.js";
import { openOutput, printNotice } from "../lib/print.js";
import { suggestion } from "../lib/suggest.js";

const NOTICE_AFTER_MS = 1000;

interface Options extends BrokerChoice {
  readonly timeout: number;
  readonly retry?: boolean;
  readonly pool?: string;
}

export function request(): Command {
  const command = new Command("request")
    .description(
      "Call a service and print its reply, byte for byte. If the service fails, print its message and exit with 1.",
    )
    .argument("<service>", "name of the service; laboro services lists them")
    .argument("[body]", "body of the request; - reads it from standard input (default: empty)")
    .addOption(
      new Option("--timeout <duration>", "how long to wait for the reply")
        .argParser(parseDuration)
        .default(30_000, "30s"),
    )
    .option("--pool <name>", "use only workers of this pool")
    .option("--retry", "if the worker is lost, send the request to another one; for requests that may run twice")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro request reverse hello\n  laboro request resize - --timeout 2m < in.png > out.png",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(service: string, body: string | undefined, options: Options): Promise<void> {
  const { timeout: timeoutMs, retry = false, pool } = options;
  const bytes = body === "-" ? await buffer(process.stdin) : Buffer.from(body ?? "");
  const ask = async (client: Client): Promise<void> => {
    const stopWatching = noticeUnknownService(client, service, pool);
    const answer = await client
      .request(service, bytes, { timeoutMs, retry, ...(pool && { pool }) })
      .catch((cause: unknown) => {
        // The message of the service alone would not name the service.
        if (!(cause instanceof LaboroError) || cause.code !== "LABORO_SERVICE_FAILED") throw cause;
        throw new LaboroError(cause.code, `service ${service}: ${cause.message}`, { cause });
      })
      .finally(stopWatching);
    openOutput(process.stdout)(answer);
    // Otherwise the shell prompt would follow on the same line.
    if (process.stdout.isTTY && answer.length > 0 && answer.at(-1) !== 0x0a) process.stdout.write("\n");
  };
  await withBroker(options, ask, openRunningBroker);
}

/** Says after a while without a reply that no worker offers the service: the request waits, and its name may be wrong. */
function noticeUnknownService(client: Client, service: string, pool = "default"): () => void {
  const replied = new AbortController();
  const look = async (): Promise<void> => {
    const { services } = await client.ask("services", {});
    const offered = services.filter((each) => each.pool === pool && each.workers > 0).map(({ name }) => name);
    if (replied.signal.aborted || offered.includes(service)) return;
    printNotice(`no worker offers service ${service}, waiting for one${suggestion(service, offered)}`);
  };
  // The request itself reports what is wrong with the connection.
  const timer = setTimeout(() => void look().catch(() => {}), NOTICE_AFTER_MS);
  return () => {
    clearTimeout(timer);
    replied.abort();
  };
}
