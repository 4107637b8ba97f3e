/** GNU parallel, where it is installed. */
import { which } from "../lib/children.mjs";
import { pipeline } from "./pipeline.mjs";

export const parallel = {
  name: "GNU parallel -j",
  available: () => which("parallel") !== undefined,
  run: (work) => pipeline(work, (command) => `parallel --will-cite -n0 -j${work.atOnce} ${quote(command)}`),
};

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
