/** xargs: no log, no grouping of output; the practical limit for starting processes from a list. */
import { which } from "../lib/children.mjs";
import { pipeline } from "./pipeline.mjs";

export const xargs = {
  name: "xargs -P",
  available: () => which("xargs") !== undefined,
  run: (work) => pipeline(work, (command) => `xargs -P${work.atOnce} ${form(work)} ${command}`),
};

/** -n1 adds a word to the command. sleep would sleep longer for it. */
const form = ({ argv }) => (argv[0] === "sleep" ? "-I{}" : "-n1");
