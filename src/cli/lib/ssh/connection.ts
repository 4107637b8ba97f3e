/**
 * One ssh connection to a machine. The process of ssh runs a shell there, which reads commands from this end. The same
 * connection carries forwards to Unix sockets on the machine.
 *   opening  ssh logs in; a login that the server dropped because there were too many at once is tried again
 *   open     commands run, one after the other
 *   ended    by close(), or because ssh ended: `ended` resolves with the reason
 * If the user has a connection to the machine already (ControlMaster in the config of ssh), that one is used.
 *
 * Machines as they are named on the command line: `[USER@]HOST[:PORT][/SLOTS]`, lists of them, and `@FILE`.
 */
import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { badInput, LaboroError, whyUnreadable } from "../../../base/errors.js";
import { makeTemporaryFolder } from "../../../base/files/temporary.js";

export interface SshHost {
  /** As it was named, without slots. */
  readonly label: string;
  /** What ssh is called with: `[USER@]HOST`, or a name from its config. */
  readonly destination: string;
  readonly port?: number;
  readonly slots?: number;
}

export interface NamedHosts {
  readonly hosts: readonly SshHost[];
  /** `:` or `:/SLOTS` was named. 0 slots: the cores of this machine. */
  readonly local?: { readonly slots: number };
}

export const HOST_FORMAT = "[USER@]HOST[:PORT][/SLOTS], such as ada@node1:2222/8, or @FILE with one in each line";
/** The host cannot begin with a dash: ssh would take it for an option. */
const HOST =
  /^((?:[^\s@/:,'"\\-][^\s@/:,'"\\]*@)?(?:[\w.][\w.-]*|\[[\da-fA-F:.%\w]+\]))(?::(\d{1,5}))?(?:\/(\d{1,5}))?$/;
const MAX_HOSTS = 1_000;

/** Each word is a list with commas of machines and files. */
export function parseHosts(words: readonly string[], what = "host"): NamedHosts {
  const hosts: SshHost[] = [];
  let local: NamedHosts["local"];
  for (const name of words.flatMap((word) => word.split(",")).flatMap((name) => namesIn(name, what))) {
    const here = /^:(?:\/([1-9]\d{0,4}))?$/.exec(name);
    if (here !== null) local = { slots: Number(here[1] ?? 0) };
    else hosts.push(parseHost(name, what));
  }
  if (hosts.length === 0 && local === undefined && words.length > 0)
    throw badInput(`${what}: no machine is named; expected ${HOST_FORMAT}`);
  if (hosts.length > MAX_HOSTS) throw badInput(`${what}: at most ${MAX_HOSTS} machines, got ${hosts.length}`);
  const twice = hosts.find(({ label }, i) => hosts.findIndex((one) => one.label === label) !== i);
  if (twice !== undefined) throw badInput(`${what}: ${twice.label} is named twice; ${twice.label}/8 gives it 8 slots`);
  return local === undefined ? { hosts } : { hosts, local };
}

function namesIn(name: string, what: string): string[] {
  if (!name.startsWith("@")) return name === "" ? [] : [name];
  const file = name.slice(1);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    throw badInput(`${what}: the file ${file} cannot be read: ${whyUnreadable(cause)}`, cause);
  }
  const lines = text.split("\n").map((line) => line.replace(/#.*/, "").trim());
  const names = lines.filter((line) => line !== "");
  if (names.length === 0) throw badInput(`${what}: the file ${file} names no machine; expected ${HOST_FORMAT}`);
  return names;
}

function parseHost(name: string, what: string): SshHost {
  const [, destination, port, slots] = HOST.exec(name) ?? [];
  const isWrong = destination === undefined || Number(port ?? 1) > 65_535 || port === "0" || slots === "0";
  if (isWrong) throw badInput(`${what}: expected ${HOST_FORMAT}, got ${JSON.stringify(name)}`);
  return {
    label: port === undefined ? destination : `${destination}:${port}`,
    // ssh takes an IPv6 address without brackets.
    destination: destination.replace(/[[\]]/g, ""),
    ...(port === undefined ? {} : { port: Number(port) }),
    ...(slots === undefined ? {} : { slots: Number(slots) }),
  };
}

const LOGIN_TRIES = 4;
const RETRY_MS = 700;
const COMMAND_MS = 30_000;
const STDERR_KEPT = 4_096;

/**
 * Batch mode, because several ssh processes cannot ask questions. Forwards and commands of the user's config are for
 * interactive logins. Options in LABORO_SSH come before these, and the first value counts.
 */
const OPTIONS = [
  ...["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4", "RequestTTY=no"],
  ...["RemoteCommand=none", "ClearAllForwardings=yes", "ForwardX11=no", "PermitLocalCommand=no", "LogLevel=ERROR"],
].flatMap((option) => ["-o", option]);

/** The ssh command with its own options: LABORO_SSH, split at blanks. */
function sshCommand(): readonly [string, ...string[]] {
  const [file = "ssh", ...args] = (process.env.LABORO_SSH ?? "").split(/\s+/).filter((word) => word !== "");
  return [file, ...args];
}

export interface Ran {
  readonly code: number;
  /** Standard output and standard error together. */
  readonly text: string;
}

export class SshConnection {
  readonly host: SshHost;
  /** Why it ended. */
  readonly ended: Promise<LaboroError>;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #mark = randomBytes(12).toString("hex");
  /** The arguments that reach this connection for `-O forward`. */
  readonly #control: readonly string[];
  #forwarded: string[] = [];
  #received = "";
  #errors = "";
  #isOver = false;
  #onOutput: () => void = () => {};
  #last: Promise<unknown> = Promise.resolve();

  private constructor(host: SshHost, shared: boolean, folder: string) {
    const [file, ...own] = sshCommand();
    const to = [...(host.port === undefined ? [] : ["-p", String(host.port)]), "--", host.destination];
    const socket = join(folder, "s");
    const master = ["-o", "ControlMaster=yes", "-o", `ControlPath=${socket}`, "-o", "ControlPersist=no"];
    this.host = host;
    // The user's config leads to the user's connection. Nothing of it is needed for an own one.
    this.#control = shared ? to : ["-F", "none", "-S", socket, "--", host.destination];
    // In a session of its own: Ctrl-C is for laboro, which lets tasks end first.
    this.#child = spawn(file, [...own, ...OPTIONS, "-T", ...(shared ? [] : master), ...to, "exec sh"], {
      detached: true,
      stdio: "pipe",
    });
    this.#child.stdin.on("error", () => {});
    this.#child.stdout.setEncoding("latin1").on("data", (text: string) => {
      this.#received += text;
      this.#onOutput();
    });
    // The remote shell has ended. ssh itself continues as long as the worker is connected through it.
    this.#child.stdout.once("end", () => this.#child.kill());
    this.#child.stderr.setEncoding("latin1").on("data", (text: string) => {
      this.#errors = (this.#errors + text).slice(-STDERR_KEPT);
    });
    this.ended = new Promise((resolve) => {
      const end = (why: LaboroError): void => {
        this.#isOver = true;
        rmSync(folder, { recursive: true, force: true });
        resolve(why);
        this.#onOutput();
      };
      this.#child.once("error", (cause) => end(sshFailed(`${file} cannot be started: ${cause.message}`)));
      this.#child.once("close", (code) => end(whyEnded(this.#errors, code, this.host)));
    });
  }

  /** Logs in. Rejects with LABORO_SSH_FAILED and the reason. */
  static async open(host: SshHost, signal?: AbortSignal): Promise<SshConnection> {
    const shared = await hasConnection(host);
    for (let left = LOGIN_TRIES; ; left--) {
      const connection = new SshConnection(host, shared, makeTemporaryFolder("laboro-ssh-"));
      const abort = (): void => void connection.#child.kill();
      signal?.addEventListener("abort", abort);
      try {
        await connection.run(":", { timeoutMs: 2 * COMMAND_MS });
        return connection;
      } catch (cause) {
        await connection.close();
        if (left === 1 || signal?.aborted === true || !isDropped(connection.#errors)) throw cause;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS * (1 + Math.random())));
      } finally {
        signal?.removeEventListener("abort", abort);
      }
    }
  }

  /** Runs shell text there. `input` is its standard input, otherwise that is empty. */
  run(script: string, options: { readonly input?: Buffer; readonly timeoutMs?: number } = {}): Promise<Ran> {
    const ran = this.#last.then(() => this.#run(script, options));
    this.#last = ran.catch(() => {});
    return ran;
  }

  async #run(script: string, { input, timeoutMs = COMMAND_MS }: Parameters<SshConnection["run"]>[1] & {}) {
    const mark = `${this.#mark}${randomBytes(4).toString("hex")}`;
    // A shell may read ahead. So the input follows when the command has begun, and all of it is read in any case.
    const body =
      input === undefined
        ? `{ ${script}\n} </dev/null 2>&1`
        : `head -c ${input.length} | { { ${script}\n} 2>&1; laboro_rc=$?; cat >/dev/null; (exit $laboro_rc); }`;
    this.#received = "";
    this.#child.stdin.write(`echo; echo ${mark}b; ${body}; laboro_rc=$?; echo; echo ${mark}e$laboro_rc\n`);
    if (input !== undefined) {
      await this.#until(new RegExp(`${mark}b\n`), timeoutMs);
      this.#child.stdin.write(input);
    }
    const [, text = "", code] = await this.#until(new RegExp(`${mark}b\n([^]*?)\n${mark}e(\\d+)\n`), timeoutMs);
    return { code: Number(code), text: Buffer.from(text, "latin1").toString().trim() };
  }

  #until(pattern: RegExp, timeoutMs: number): Promise<RegExpExecArray> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#errors += `\nno answer within ${timeoutMs / 1000} s`;
        this.#child.kill();
      }, timeoutMs);
      const look = (): void => {
        const found = pattern.exec(this.#received);
        if (found === null && !this.#isOver) return;
        clearTimeout(late);
        this.#onOutput = () => {};
        if (found !== null) resolve(found);
        else void this.ended.then(reject);
      };
      this.#onOutput = look;
      look();
    });
  }

  /** Connections to the remote Unix socket reach host:port as seen from here. Replaces an old socket of this name. */
  async forward(socket: string, host: string, port: number): Promise<void> {
    await this.run(`rm -f '${socket}'`);
    await this.#controlConnection("forward", `${socket}:${host.includes(":") ? `[${host}]` : host}:${port}`);
    this.#forwarded.push(`${socket}:${host}:${port}`);
  }

  async #controlConnection(what: "forward" | "cancel", forward: string): Promise<void> {
    const [file, ...own] = sshCommand();
    const args = [...own, "-O", what, "-R", forward, ...this.#control];
    try {
      await promisify(execFile)(file, args, { timeout: COMMAND_MS });
    } catch (cause) {
      const text = String((cause as { stderr?: unknown }).stderr ?? cause).trim();
      throw sshFailed(`its sshd does not forward a Unix socket (AllowStreamLocalForwarding): ${lastLine(text)}`);
    }
  }

  /** The connection of the user stays, without the forwards. Resolves when ssh has ended and its socket is removed. */
  async close(): Promise<void> {
    if (this.#isOver) return;
    if (!this.#control.includes("-S"))
      for (const forward of this.#forwarded.splice(0)) this.#controlConnection("cancel", forward).catch(() => {});
    this.#child.stdin.end();
    this.#child.kill();
    await this.ended;
  }
}

async function hasConnection({ destination, port }: SshHost): Promise<boolean> {
  const [file, ...own] = sshCommand();
  const args = [...own, "-O", "check", ...(port === undefined ? [] : ["-p", String(port)]), "--", destination];
  return promisify(execFile)(file, args, { timeout: COMMAND_MS }).then(
    () => true,
    () => false,
  );
}

export const sshFailed = (text: string): LaboroError => new LaboroError("LABORO_SSH_FAILED", text);

/** sshd drops excess concurrent logins (MaxStartups) without a message. */
const isDropped = (errors: string): boolean =>
  /kex_exchange_identification|Connection (?:closed|reset) by|banner exchange/.test(errors);

/** SSH stands for the command that logs in to the machine, HOST for its name. */
const REASONS: readonly (readonly [RegExp, string])[] = [
  [/IDENTIFICATION HAS CHANGED/, "its host key has changed; if that is right: ssh-keygen -R HOST"],
  [/Host key verification failed|No \S+ host key is known/, "its host key is not known; accept it once: SSH"],
  [/Permission denied/, "it refuses the login; ssh-copy-id HOST, or ssh-add, lets laboro in without a password"],
  [/Could not resolve hostname|Name or service not known/, "this host name is not known"],
  [/Connection refused/, "nothing listens there (connection refused)"],
  [/timed out|Timeout|not responding/, "it does not answer"],
  [/No route to host|Network is unreachable/, "there is no route to it"],
];

function whyEnded(errors: string, code: number | null, { destination, port }: SshHost): LaboroError {
  const known = REASONS.find(([pattern]) => pattern.test(errors));
  const last = lastLine(errors);
  if (known !== undefined) {
    const option = port === undefined ? "" : `-p ${port} `;
    const host = destination.replace(/^.*@/, "");
    const reason = known[1]
      .replace("SSH", () => `${sshCommand().join(" ")} ${option}${destination}`)
      .replace("ssh-copy-id HOST", () => `ssh-copy-id ${option}${destination}`)
      .replace("HOST", () => (port === undefined ? host : `'[${host}]:${port}'`));
    return sshFailed(`${reason}${last === "" ? "" : ` (${last})`}`);
  }
  return sshFailed(last === "" ? `the connection ended (ssh exited with ${code ?? "a signal"})` : last);
}

const lastLine = (text: string): string => text.trim().split(/\r?\n/).at(-1)?.trim() ?? "";
