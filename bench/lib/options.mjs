/** What was asked for on the command line. */
import { parseArgs } from "node:util";

export const HELP = `npm run bench -- [options]

  --only NAME[,NAME]  these topics only
  --runs N            interleaved runs of each measurement (default 3)
  --quick             a tenth of the work: to see that it runs, not to quote
  --long              more of what takes long: ten million tasks and 100,000 workers in topic dispatch
  --peers             fetch the npm packages of the peers, once; from then on they are measured where their servers are installed
  --profile           CPU profiles of laboro's broker and worker; the costliest functions are printed
  --dir DIR           where throw-away data goes (default: the temporary directory); its disk is what fsync costs
  --list              the topics`;

export function readOptions(argv) {
  const { values } = parseArgs({
    args: argv,
    options: {
      only: { type: "string", multiple: true, default: [] },
      runs: { type: "string", default: "3" },
      quick: { type: "boolean", default: false },
      long: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
      profile: { type: "boolean", default: false },
      dir: { type: "string" },
      list: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const runs = Number(values.runs);
  if (!Number.isInteger(runs) || runs < 1) throw new Error(`--runs: expected a whole number, got ${values.runs}`);
  return { ...values, runs, only: values.only.flatMap((names) => names.split(",")) };
}
