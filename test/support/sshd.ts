/** A real sshd on loopback with keys of its own, and machines behind it: names in a config of ssh, each with a home directory. */
import { execFileSync, spawn } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { atEnd } from "./at-end.js";
import { freePort } from "./free-port.js";
import { processesWith, processRow } from "./process-table.js";
import { until } from "./wait.js";

const PROGRAM = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].find((path) => fs.existsSync(path));
const hasClient = ["ssh", "ssh-keygen"].every((name) => fs.existsSync(`/usr/bin/${name}`));
/** For the name of a test that is skipped. */
export const NO_SSHD = PROGRAM === undefined || !hasClient ? "needs openssh-server" : undefined;

export interface Sshd {
  readonly dir: string;
  /** `LABORO_SSH`. */
  readonly command: string;
  /** A machine that lets us in; `settings` are lines of sshd_config. Its home directory unless one is given. */
  machine(name: string, settings?: readonly string[], home?: string): Promise<string>;
  /** Another name, with lines of ssh's config. */
  alias(name: string, ...lines: readonly string[]): void;
  /** Workers, tasks and shells that were started on this machine. */
  processes(name: string): ReturnType<typeof processesWith>;
  /** Ends the connections to the machine without a word, and nothing else. */
  cut(name: string): void;
  /** Ends all that runs on the machine, connections first. */
  kill(name: string): void;
}

/** With `host`, sshd runs in this network namespace and listens at its address. */
export async function openSshd(host?: { readonly namespace: string; readonly address: string }): Promise<Sshd> {
  const address = host?.address ?? "127.0.0.1";
  const [program = "", ...before] = [
    ...(host === undefined ? [] : ["ip", "netns", "exec", host.namespace]),
    PROGRAM ?? "",
  ];
  const dir = fs.mkdtempSync(join(tmpdir(), "laboro-sshd-"));
  const file = (name: string): string => join(dir, name);
  for (const name of ["host_key", "other_key", "id"])
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file(name)]);
  fs.copyFileSync(file("id.pub"), file("authorized_keys"));
  fs.writeFileSync(file("config"), "");
  // Started by root, sshd wants its compiled-in empty folder.
  if (process.getuid?.() === 0) fs.mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
  const daemons = new Map<string, number>();
  const mark = (name: string): string => `LABORO_TEST_MACHINE=${dir}/${name}.`;
  const processes = (name: string): ReturnType<typeof processesWith> => processesWith(mark(name));
  /** The process that has the connection: it has the environment of the daemon, which its shell has not. */
  const sessions = (name: string): number[] =>
    fs.readdirSync("/proc").flatMap((pid) => {
      const row = /^\d+$/.test(pid) ? processRow(Number(pid)) : undefined;
      return row?.parent === daemons.get(name) ? [Number(pid)] : [];
    });
  const end = (pid: number): void => {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  };
  const cut = (name: string): void => sessions(name).forEach(end);
  const kill = (name: string): void => {
    cut(name);
    for (const { pid } of processes(name)) end(pid);
  };
  atEnd(() => {
    for (const [name, daemon] of daemons) {
      end(daemon);
      cut(name);
      kill(name);
    }
    fs.rmSync(dir, { recursive: true, force: true });
  });
  const alias = (name: string, ...lines: readonly string[]): void => {
    const text = [`Host ${name}`, `HostName ${address}`, ...lines, `User ${userInfo().username}`];
    const rest = [`IdentityFile ${file("id")}`, "IdentitiesOnly yes", `UserKnownHostsFile ${file("known_hosts")}`];
    fs.appendFileSync(file("config"), `${[...text, ...rest, "GlobalKnownHostsFile /dev/null"].join("\n  ")}\n`);
  };
  return {
    dir,
    command: `ssh -F ${file("config")} -o StrictHostKeyChecking=yes -o IdentityAgent=none`,
    alias,
    processes,
    cut,
    kill,
    machine: async (name, settings = [], home = file(`${name}-home`)) => {
      const port = await freePort();
      fs.mkdirSync(home, { recursive: true });
      const lines = [
        ...[`ListenAddress ${address}:${port}`, `HostKey ${file("host_key")}`, `PidFile ${file(`${name}.pid`)}`],
        ...[
          `AuthorizedKeysFile ${file("authorized_keys")}`,
          "StrictModes no",
          "UsePAM no",
          "PasswordAuthentication no",
        ],
        ...["KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "UseDNS no", "PrintMotd no"],
        // One line, and one of each name: of several, sshd takes the first.
        `SetEnv HOME=${home} ${mark(name)} ${settings.filter((one) => /^[A-Z]+=/.test(one)).join(" ")} TMPDIR=${dir}`,
        ...settings.filter((one) => !/^[A-Z]+=/.test(one)),
      ];
      fs.writeFileSync(file(`${name}.conf`), `${lines.join("\n")}\n`);
      const args = [...before, "-D", "-f", file(`${name}.conf`), "-E", file(`${name}.log`)];
      const daemon = spawn(program, args, { detached: true, stdio: "ignore" });
      daemons.set(name, daemon.pid ?? 0);
      const key = fs.readFileSync(file("host_key.pub"), "utf8").split(" ", 2).join(" ");
      fs.appendFileSync(file("known_hosts"), `[${address}]:${port} ${key}\n`);
      alias(name, `Port ${port}`);
      await until(`sshd ${name} listens`, () => fs.existsSync(file(`${name}.pid`)));
      return home;
    },
  };
}
