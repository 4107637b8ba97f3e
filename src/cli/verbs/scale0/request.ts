/** `laboro scale0 request`: ask a service of a Scale0 broker. */
import { Command, Option } from "commander";
import { LaboroError } from "../../../base/errors.js";
import { Scale0Client } from "../../../protocols/scale0/worker/client.js";
import { parseDuration } from "../../lib/duration.js";
import { collect } from "../../lib/option-parsers.js";
import { openOutput } from "../../lib/print.js";
import { CURVE_HELP, connectTimeout, curveOf, withRemedy } from "./options.js";

interface Options {
  readonly broker: string;
  readonly other: readonly string[];
  readonly timeout: number;
  readonly retry?: boolean;
  readonly connectTimeout: number;
  readonly curve?: string;
}

export function request(): Command {
  return new Command("request")
    .description(
      "Ask a service of a Scale0 broker and print its answer, byte for byte. A refusal is exit code 1, with its code.",
    )
    .argument("<service>", "its name")
    .argument("[body]", "what to ask; - reads it from standard input, nothing asks with an empty body")
    .option("--broker <url>", "the broker's client port", "tcp://127.0.0.1:8080")
    .option(
      "--other <url>",
      "the client port of another broker, for when that one does not answer; may be repeated",
      collect,
      [],
    )
    .addOption(
      new Option("--timeout <duration>", "how long to wait for the answer")
        .argParser(parseDuration)
        .default(30_000, "30s"),
    )
    .option("--retry", "let another worker answer where the first is lost: for what may be done twice")
    .addOption(connectTimeout())
    .option("--curve <file>", CURVE_HELP)
    .addHelpText(
      "after",
      "\nExamples:\n  laboro scale0 request upper hello\n  laboro scale0 request resize - --broker tcp://head:8080 < in.png > out.png",
    )
    .action(run);
}

async function run(service: string, body: string | undefined, options: Options): Promise<void> {
  const { broker, other, timeout: timeoutMs, connectTimeout: connectTimeoutMs, retry = false, curve } = options;
  const bytes = body === "-" ? await readAll() : Buffer.from(body ?? "");
  const client = new Scale0Client({ broker, others: other, connectTimeoutMs, ...curveOf(curve) });
  try {
    const answer = await client.request(service, bytes, { timeoutMs, retry }).catch((cause: unknown) => {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_SERVICE_FAILED") throw cause;
      throw new LaboroError(cause.code, `service ${service}: ${cause.message}`, { cause });
    });
    const write = openOutput(process.stdout);
    for (const frame of answer) write(frame);
  } catch (cause) {
    throw withRemedy(cause, "laboro serve --protocol scale0 opens one");
  } finally {
    await client.close();
  }
}

async function readAll(): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of process.stdin) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
