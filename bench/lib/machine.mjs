/** On what it was measured. */
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { join } from "node:path";
import { removeFolder, temporaryFolder } from "./children.mjs";
import { median } from "./figures.mjs";

export function machine() {
  return {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model ?? "unknown",
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: systemName(),
    node: process.version,
    fsyncMs: Number(fsyncTime().toFixed(3)),
    load: loadavg().map((one) => Number(one.toFixed(2))),
  };
}

export const describe = ({ cores, cpu, memoryGiB, system, node, fsyncMs, load }) =>
  `${cores} cores (${cpu}), ${memoryGiB} GiB, ${system}, Node ${node}; fsync of 8 kB ${fsyncMs} ms; load before ${load.join(" ")}`;

function systemName() {
  try {
    return /PRETTY_NAME="(.*)"/.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? process.platform;
  } catch {
    return process.platform;
  }
}

/** Milliseconds to append 8 kB and have it on disk. */
function fsyncTime() {
  const dir = temporaryFolder("fsync");
  const file = openSync(join(dir, "file"), "w");
  const block = Buffer.alloc(8_192, 1);
  const times = Array.from({ length: 200 }, () => {
    const begin = performance.now();
    writeSync(file, block);
    fsyncSync(file);
    return performance.now() - begin;
  });
  closeSync(file);
  removeFolder(dir);
  return median(times);
}
