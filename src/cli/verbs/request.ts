/** `laboro request`: ask a service. */
import { Command, Option } from "commander";
import { LaboroError } from "../../base/errors.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { parseDuration } from "../lib/duration.js";
import { openOutput } from "../lib/print.js";

interface Options extends BrokerChoice {
  readonly timeout: number;
  readonly retry?: boolean;
  readonly pool?: string;
}

export function request(): Command {
  const command = new Command("request")
    .description(
      "Ask a service and print its answer, byte for byte. A service that fails is exit code 1, with its words.",
    )
    .argument("<service>", "its name; laboro services lists them")
    .argument("[body]", "what to ask; - reads it from standard input, nothing asks with an empty body")
    .addOption(
      new Option("--timeout <duration>", "how long to wait for the answer")
        .argParser(parseDuration)
        .default(30_000, "30s"),
    )
    .option("--pool <name>", "workers of this pool")
    .option("--retry", "let another worker answer where the first is lost: for what may be done twice")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro request reverse hello\n  laboro request resize - --timeout 2m < in.png > out.png",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(service: string, body: string | undefined, options: Options): Promise<void> {
  const { timeout: timeoutMs, retry = false, pool } = options;
  const bytes = body === "-" ? await readAll() : Buffer.from(body ?? "");
  await withBroker(options, async (client) => {
    const answer = await client
      .request(service, bytes, { timeoutMs, retry, ...(pool && { pool }) })
      .catch((cause: unknown) => {
        // Its own words alone would not say whose they are.
        if (!(cause instanceof LaboroError) || cause.code !== "LABORO_SERVICE_FAILED") throw cause;
        throw new LaboroError(cause.code, `service ${service}: ${cause.message}`, { cause });
      });
    openOutput(process.stdout)(answer);
    // Or the prompt would stand behind it.
    if (process.stdout.isTTY && answer.length > 0 && answer.at(-1) !== 0x0a) process.stdout.write("\n");
  });
}

async function readAll(): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of process.stdin) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
