// Preloaded into a process under test: its wall clock is off by as many milliseconds as a file says. SIGUSR2 makes it read the file again.
import { readFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";

const RealDate = Date;
let offset = 0;
const read = () => {
  offset = Number(readFileSync(process.env.LABORO_TEST_CLOCK, "utf8"));
};
read();
if (isMainThread) process.on("SIGUSR2", read);

globalThis.Date = class extends RealDate {
  constructor(...args) {
    if (args.length === 0) super(RealDate.now() + offset);
    else super(...args);
  }
  static now() {
    return RealDate.now() + offset;
  }
};
