/**
 * A Slurm of its own for a test: munged, slurmctld and slurmd on loopback, one node of two CPUs, everything in one folder. Debian's packages
 * slurmctld, slurmd, slurm-client and munge are enough. It needs root, because slurmd does.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { atEnd } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { until } from "../support/wait.js";

const PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo"];
const PATH = `${process.env.PATH}:/usr/sbin`;

/** Why there can be none here; undefined if there can. */
export function whyNoSlurm(): string | undefined {
  const missing = PROGRAMS.filter((name) => !PATH.split(":").some((dir) => existsSync(join(dir, name))));
  if (missing.length > 0) return `not installed: ${missing.join(", ")}`;
  return process.getuid?.() === 0 ? undefined : "slurmd needs root";
}

export class SlurmSite {
  readonly dir: string;
  readonly #daemons = new Map<string, ChildProcess>();

  private constructor(dir: string) {
    this.dir = dir;
  }

  /** Its commands are those of this process from now on, until the test ends. */
  static async open(lines: readonly string[] = []): Promise<SlurmSite> {
    // The paths of sockets are short.
    const site = new SlurmSite(mkdtempSync("/tmp/lslurm-"));
    const { SLURM_CONF } = process.env;
    atEnd(async () => {
      await site.close();
      if (SLURM_CONF === undefined) delete process.env.SLURM_CONF;
      else process.env.SLURM_CONF = SLURM_CONF;
    });
    await site.#open(lines);
    return site;
  }

  async #open(lines: readonly string[]): Promise<void> {
    const { dir } = this;
    execFileSync("chmod", ["755", dir]);
    for (const name of ["state", "spool"]) mkdirSync(join(dir, name));
    writeFileSync(join(dir, "munge.key"), randomBytes(128), { mode: 0o600 });
    const user = execFileSync("id", ["-un"], { encoding: "utf8" }).trim();
    const config = {
      ...{ ClusterName: "test", SlurmctldHost: "localhost(127.0.0.1)", SlurmUser: user, SlurmdUser: user },
      ...{ SlurmctldPort: await freePort(), SlurmdPort: await freePort() },
      CommunicationParameters: "NoCtldInAddrAny,NoInAddrAny",
      ...{ AuthType: "auth/munge", AuthInfo: `socket=${dir}/munge.socket,cred_expire=10` },
      ...{ StateSaveLocation: `${dir}/state`, SlurmdSpoolDir: `${dir}/spool` },
      ...{ SlurmctldPidFile: `${dir}/slurmctld.pid`, SlurmdPidFile: `${dir}/slurmd.pid` },
      ...{ SlurmctldLogFile: `${dir}/slurmctld.log`, SlurmdLogFile: `${dir}/slurmd.log` },
      ...{ ProctrackType: "proctrack/linuxproc", TaskPlugin: "task/none" },
      ...{ JobAcctGatherType: "jobacct_gather/none", AccountingStorageType: "accounting_storage/none" },
      ...{ SelectType: "select/cons_tres", SelectTypeParameters: "CR_CPU" },
      // Shorter than usual, so that jobs start and end at once.
      ...{ SchedulerParameters: "batch_sched_delay=0,sched_interval=2,bf_interval=2", KillWait: 2 },
      ...{ SlurmdParameters: "config_overrides", MpiDefault: "none", MailProg: "/bin/true", ReturnToService: 1 },
    };
    const nodes = [
      "NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN",
      "PartitionName=debug Nodes=node1 Default=YES MaxTime=INFINITE State=UP",
    ];
    // The last of two lines of a name counts.
    const text = [...Object.entries(config).map(([name, value]) => `${name}=${value}`), ...nodes, ...lines];
    process.env.SLURM_CONF = join(dir, "slurm.conf");
    writeFileSync(process.env.SLURM_CONF, `${text.join("\n")}\n`);
    this.#start("munged", [
      ...["--foreground", "--force", `--socket=${dir}/munge.socket`, `--key-file=${dir}/munge.key`],
      ...[`--log-file=${dir}/munged.log`, `--pid-file=${dir}/munged.pid`, `--seed-file=${dir}/munged.seed`],
    ]);
    await until("munged answers", () => existsSync(`${dir}/munge.socket`));
    await this.startController();
    this.#start("slurmd", ["-D", "-f", process.env.SLURM_CONF, "-N", "node1"]);
    await until("its node is idle", () => this.run("sinfo", "-h", "-o", "%T") === "idle");
  }

  async startController(): Promise<void> {
    this.#start("slurmctld", ["-D", "-f", join(this.dir, "slurm.conf")]);
    await until("slurmctld answers", () => this.run("scontrol", "ping")?.includes("UP"));
  }

  /** It ends at once, as if its machine had. Jobs go on. */
  async stopController(): Promise<void> {
    await this.#stop("slurmctld");
  }

  /** From now on its node starts no job, and is drained at the first. */
  failProlog(): void {
    writeFileSync(join(this.dir, "prolog"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
    appendFileSync(join(this.dir, "slurm.conf"), `Prolog=${this.dir}/prolog\n`);
    this.run("scontrol", "reconfigure");
  }

  #start(name: string, args: readonly string[]): void {
    const log = openSync(join(this.dir, `${name}.out`), "a");
    const daemon = spawn(name, args, { env: { ...process.env, PATH }, stdio: ["ignore", log, log] });
    daemon.on("error", () => {});
    this.#daemons.set(name, daemon);
  }

  async #stop(name: string): Promise<void> {
    const daemon = this.#daemons.get(name);
    this.#daemons.delete(name);
    if (daemon === undefined || daemon.exitCode !== null) return;
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGKILL");
    await ended;
  }

  /** What a command of Slurm prints; undefined where it fails. */
  run(program: string, ...args: readonly string[]): string | undefined {
    try {
      return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    } catch {
      return undefined;
    }
  }

  /** The jobs that are queued or running: id and state. */
  get jobs(): readonly { readonly id: string; readonly state: string }[] {
    const lines = (this.run("squeue", "-h", "-o", "%i %T") ?? "").split("\n").filter(Boolean);
    return lines.map((line) => ({ id: line.split(" ")[0] ?? "", state: line.split(" ")[1] ?? "" }));
  }

  /** Slurm ends the jobs, then the daemons are ended. */
  async close(): Promise<void> {
    if (this.#daemons.has("slurmctld")) {
      for (const { id } of this.jobs) this.run("scancel", id);
      await until("its jobs have ended", () => this.jobs.length === 0).catch(() => {});
    }
    for (const name of ["slurmctld", "slurmd"]) await this.#stop(name);
    // A slurmstepd outlives its slurmd. It is known by its log file here.
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        if (readFileSync(`/proc/${pid}/comm`, "utf8").trim() !== "slurmstepd") continue;
        const files = execFileSync("ls", ["-l", `/proc/${pid}/fd`], { encoding: "utf8" });
        if (files.includes(`${this.dir}/`)) process.kill(Number(pid), "SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
    }
    await this.#stop("munged");
    rmSync(this.dir, { recursive: true, force: true });
  }
}
