/** `laboro serve`: a broker in the foreground. */
import { Command } from "commander";
import { DEFAULT_PORT, startBroker } from "../broker/index.js";
import { LaboroError } from "../model/errors.js";
import { defaultDataDir, logger, onSignals, wholeNumber } from "./options.js";

interface Options {
  readonly data: string;
  readonly listen: string;
  readonly allowNetworkFilesystem?: boolean;
  readonly heartbeat?: number;
  readonly grace?: number;
}

export function serve(): Command {
  return new Command("serve")
    .description("Run a broker. It keeps its jobs in the data directory and goes on where it was when started again.")
    .option("--data <dir>", "the data directory", defaultDataDir())
    .option("--listen <addr:port>", "where to listen; port 0 takes any free one", `127.0.0.1:${DEFAULT_PORT}`)
    .option("--heartbeat <ms>", "time between signs of life on a link; three missed end it", wholeNumber)
    .option("--grace <ms>", "how long a worker may be away before its tasks go to others", wholeNumber)
    .option("--allow-network-filesystem", "use a data directory on NFS or the like, at your own risk")
    .addHelpText("after", "\nExample:\n  laboro serve --data ./broker --listen 127.0.0.1:0")
    .action(run);
}

async function run(options: Options): Promise<void> {
  const { host, port } = addressOf(options.listen);
  const broker = await startBroker({
    dir: options.data,
    host,
    port,
    log: logger(),
    ...(options.heartbeat === undefined ? {} : { heartbeatMs: options.heartbeat }),
    ...(options.grace === undefined ? {} : { settings: { graceMs: options.grace } }),
    ...(options.allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem: true }),
    // Nothing can be promised any more: the next start finds what was.
    onFailed: () => process.exit(1),
  });
  console.log(`listening on ${broker.url}`);
  console.log(`a worker joins with: laboro worker --data ${options.data}`);
  onSignals(() => void broker.stop().then(() => process.exit(0)));
}

function addressOf(text: string): { host: string; port: number } {
  const found = /^(?:\[(?<v6>[^\]]+)\]|(?<host>[^:]*)):(?<port>\d+)$/.exec(text);
  const port = Number(found?.groups?.port);
  const host = found?.groups?.v6 ?? found?.groups?.host;
  if (host === undefined || host === "" || port > 65535) {
    throw new LaboroError("LABORO_BAD_INPUT", `--listen: expected ADDRESS:PORT, got ${text}`);
  }
  return { host, port };
}
