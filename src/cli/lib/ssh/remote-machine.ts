/**
 * Actions on a machine over its ssh connection: find Node, copy the worker bundle, start, inspect or stop a worker.
 * Files are in ~/.local/share/laboro on that machine. The sockets of tunnels are in /tmp/laboro-UID, because a home
 * directory may be shared by machines, and its path may be too long for a socket.
 *
 *     worker-VERSION-DIGEST.cjs   the bundle, once for each version
 *     node-DIGEST/                an unpacked archive, for a machine without Node
 *     ssh/MACHINE-ID/             one worker: join.url, log, pid, worker/ with its spool. ID stands for
 *                                 the broker and for the name by which the machine was reached
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { joinUrl } from "../../../base/addresses.js";
import { formatSize } from "../../../base/format.js";
import { packageVersion, workerBundle } from "../../../base/package.js";
import { quote } from "../../../model/shell-command-list.js";
import type { BrokerAccess } from "../../../protocols/laboro/broker-address.js";
import { tunnelSocket } from "../../../protocols/laboro/client-web-socket.js";
import { type Ran, type SshConnection, sshFailed } from "./connection.js";

const UPLOAD_MS = 600_000;
/** Without it the worker ends when its broker or the connection has been gone for this long. */
const OFFLINE_TIMEOUT = "10m";
const NEEDED_KB = 50_000;
const CONNECT_MS = 5_000;

interface WorkerStart {
  readonly access: BrokerAccess;
  /** The same for each start that should find the worker of an earlier one. */
  readonly id: string;
  readonly name: string;
  readonly slots?: number;
  /** It outlives its broker and the connection for any time. */
  readonly stay: boolean;
  /** An archive of `npm run package`, for a machine without Node. */
  readonly archive?: string;
}

export interface Facts {
  readonly machine: string;
  readonly system: string;
  readonly node?: string;
  readonly nodeVersion?: string;
  readonly freeKb: number;
  readonly home: string;
  /** The directory of the sockets of tunnels. */
  readonly tunnels: string;
}

interface WorkerLook {
  readonly pid?: number;
  readonly state: "starting" | "joined" | "waiting" | "ended";
  /** The last line of its log that says something about its state. */
  readonly said: string;
}

/** Sets n to the path of a Node that is new enough, or to nothing. `try` is called with candidates until one fits. */
const FIND_NODE = `
n=; v=
try() { [ -z "$n" ] && [ -x "$1" ] && v=$("$1" -p 'parseInt(process.versions.node)>=20?process.versions.node:""' 2>/dev/null) && [ -n "$v" ] && n=$1; }
try "$(command -v node)"
for c in "$h"/node-*/*/node/bin/node "$HOME"/.local/bin/node "$HOME"/.nvm/versions/node/*/bin/node "$HOME"/.volta/bin/node \\
  "$HOME"/.local/share/fnm/node-versions/*/installation/bin/node "$HOME"/node*/bin/node /usr/local/bin/node /opt/node*/bin/node; do
  try "$c"
done
[ -n "$n" ] || try "$("\${SHELL:-/bin/sh}" -lc 'command -v node' 2>/dev/null | tail -n 1)"`;

const PROBE = `umask 077; h="$HOME/.local/share/laboro"; t="/tmp/laboro-$(id -u)"
mkdir -p "$h/ssh" || echo "failed=$h cannot be made"
mkdir "$t" 2>/dev/null; { [ -d "$t" ] && [ ! -L "$t" ] && [ -O "$t" ] && chmod 700 "$t"; } || echo "failed=$t is not a directory of this user"
${FIND_NODE}
echo "home=$h"; echo "tunnels=$t"; echo "machine=$(uname -n)"; echo "system=$(uname -sm)"
echo "node=$n"; echo "nodeVersion=$v"; echo "freeKb=$(df -Pk "$h" | awk 'NR==2{print $4}')"`;

export class RemoteMachine {
  readonly connection: SshConnection;

  constructor(connection: SshConnection) {
    this.connection = connection;
  }

  async facts(): Promise<Facts> {
    const { text } = await this.connection.run(PROBE);
    const found = new Map(text.split("\n").map((line): [string, string] => splitAt(line, "=")));
    const failed = found.get("failed");
    if (failed !== undefined) throw sshFailed(`${failed}: ${text.split("\n")[0]}`);
    const of = (name: string): string => found.get(name) ?? "";
    const node = of("node") === "" ? {} : { node: of("node"), nodeVersion: of("nodeVersion") };
    const freeKb = Number(of("freeKb") || Number.POSITIVE_INFINITY);
    return { machine: of("machine"), system: of("system"), ...node, freeKb, home: of("home"), tunnels: of("tunnels") };
  }

  /** Copies what is missing. Returns the files of Node and of the bundle there. */
  async prepare(facts: Facts, archive?: string): Promise<{ readonly node: string; readonly bundle: string }> {
    const node = facts.node ?? (await this.#unpack(facts, archive));
    const { path, sha256 } = workerBundle();
    const bundle = `${facts.home}/worker-${packageVersion()}-${sha256.slice(0, 12)}.cjs`;
    const digest = `require("crypto").createHash("sha256").update(require("fs").readFileSync(process.argv[1])).digest("hex")`;
    const check = (file: string): string =>
      `[ "$(${quote(node)} -p ${quote(digest)} ${file} 2>/dev/null)" = ${sha256} ]`;
    if ((await this.connection.run(check(quote(bundle)))).code === 0) return { node, bundle };
    checkSpace(facts);
    const write = `f=${quote(bundle)}.$$; cat >"$f" && ${check('"$f"')} && mv "$f" ${quote(bundle)} || { rm -f "$f"; false; }`;
    const copied = await this.connection.run(write, { input: readFileSync(path), timeoutMs: UPLOAD_MS });
    if (copied.code !== 0) throw sshFailed(`the worker cannot be copied to ${facts.home}: ${reasonIn(copied)}`);
    return { node, bundle };
  }

  async #unpack({ home, system }: Facts, archive: string | undefined): Promise<string> {
    if (archive === undefined)
      throw sshFailed("it has no Node 20 or newer; install one there, or name an archive of laboro with --archive");
    if (system !== "Linux x86_64")
      throw sshFailed(`it has no Node, and the archive is for Linux x86_64, not ${system}`);
    const content = readFileSync(archive);
    const folder = `${home}/node-${createHash("sha256").update(content).digest("hex").slice(0, 12)}`;
    const unpack = `d=${quote(folder)}.$$; mkdir "$d" && gzip -dc | tar -xf - -C "$d" && mv "$d" ${quote(folder)} && ls ${quote(folder)}/*/node/bin/node || { rm -rf "$d"; false; }`;
    const ran = await this.connection.run(unpack, { input: content, timeoutMs: UPLOAD_MS });
    if (ran.code !== 0) throw sshFailed(`the archive cannot be unpacked in ${home}: ${reasonIn(ran)}`);
    return ran.text;
  }

  /** Why nothing there can connect to this URL without a tunnel; empty if it can. */
  async connectFault(node: string, url: string): Promise<string> {
    const { hostname, port } = portOf(url);
    const script = `const s=require("net").connect(${port},${JSON.stringify(hostname)},()=>process.exit());
s.on("error",(e)=>{console.log(e.code);process.exit()});setTimeout(()=>{console.log("no answer");process.exit()},${CONNECT_MS})`;
    return (await this.connection.run(`${quote(node)} -e ${quote(script)}`)).text.trim();
  }

  async openTunnels({ tunnels }: Facts, id: string, { urls }: BrokerAccess): Promise<void> {
    const folder = `${tunnels}/${id}`;
    await this.connection.run(`umask 077; mkdir -p ${quote(folder)}`);
    for (const text of urls) {
      const { url, hostname, port } = portOf(text);
      await this.connection.forward(tunnelSocket(folder, url), hostname, port);
    }
  }

  /** Whether a worker could join from there: why not, or nothing. Also the limit of open files, and the clock there. */
  async check(
    facts: Facts,
    files: { readonly node: string; readonly bundle: string },
    id: string,
    access: BrokerAccess,
  ): Promise<{ readonly fault: string; readonly openFiles: string; readonly clock: number }> {
    const tunnels = `${facts.tunnels}/${id}`;
    const [node, bundle, join] = [files.node, files.bundle, `${tunnels}/join.url`].map((word) => quote(word));
    const script = `umask 077; cat >${join} <<'laboro-end'
${joinText(access)}
laboro-end
echo "$(ulimit -Hn) $(${node} -p 'Date.now()')"; ${node} ${bundle} check @${join} ${quote(tunnels)}`;
    try {
      await this.openTunnels(facts, id, access);
      const { text } = await this.connection.run(script);
      const [, openFiles = "", clock, fault = ""] = /^(\S+) (\d+)\n?([\s\S]*)$/.exec(text) ?? [];
      if (clock === undefined) throw sshFailed(`the check there said: ${text}`);
      return { fault: fault.trim(), openFiles, clock: Number(clock) };
    } finally {
      await this.connection.run(`rm -rf ${quote(tunnels)}`);
    }
  }

  /** Starts the worker, unless an earlier one still runs. The token comes over the connection, in no argument. */
  async start(
    facts: Facts,
    files: { readonly node: string; readonly bundle: string },
    start: WorkerStart,
  ): Promise<void> {
    const { access, id, name, slots, stay } = start;
    const folder = `${facts.home}/ssh/${facts.machine}-${id}`;
    const words = [
      ...[files.node, files.bundle, "--join", `@${folder}/join.url`, "--tunnels", `${facts.tunnels}/${id}`],
      ...["--dir", `${folder}/worker`, "--name", name],
      ...(slots === undefined ? [] : ["--slots", String(slots)]),
      ...(stay ? [] : ["--offline-timeout", OFFLINE_TIMEOUT]),
    ];
    const script = `umask 077; mkdir -p ${quote(folder)} && cd ${quote(folder)} && {
i=0; until mkdir starting 2>/dev/null || [ $i -ge 50 ]; do i=$((i+1)); sleep 0.1; done
cat >join.new <<'laboro-end' && mv join.new join.url
${joinText(access)}
laboro-end
${IS_RUNNING}
if ! running; then
  { [ ! -e log ] || mv -f log log.old; }
  (d=$PWD; cd; exec nohup ${words.map((word) => quote(word)).join(" ")} --missing-dir "$HOME" >>"$d/log" 2>&1 </dev/null) & echo $! >pid
  i=0; until running || [ $i -ge 50 ]; do i=$((i+1)); sleep 0.1; done # Before the exec it looks like another process.
fi
rmdir starting; [ -s join.url ] && [ -s pid ]; laboro_rc=$?; cd; (exit $laboro_rc); }`;
    const ran = await this.connection.run(script);
    if (ran.code !== 0) throw sshFailed(`a worker cannot be started in ${folder}: ${reasonIn(ran)}`);
  }

  async look({ home, machine }: Facts, id: string): Promise<WorkerLook> {
    const folder = quote(`${home}/ssh/${machine}-${id}`);
    const states = "has joined|trying again|waiting for one|has stopped|LABORO_";
    const script = `cd ${folder} && { ${IS_RUNNING}
running && echo "$pid" || echo 0; grep -v '^{' log | grep -E '${states}' | tail -n 1; tail -n 1 log; cd; }`;
    const { code, text } = await this.connection.run(script);
    if (code !== 0 && text === "") return { state: "ended", said: "no worker was started" };
    const [pid = 0, said = "", last = ""] = text.split("\n");
    if (Number(pid) === 0) return { state: "ended", said: said || last };
    const state = /has joined$/.test(said) ? "joined" : said === "" ? "starting" : "waiting";
    return { pid: Number(pid), state, said };
  }

  /**
   * Lets it finish its tasks, or returns them to the queue. Resolves when the process has ended. One that is just being
   * started ignores SIGINT, and has no task.
   */
  async stop({ home, machine, tunnels }: Facts, id: string, finish: boolean, timeoutMs: number): Promise<void> {
    const folder = quote(`${home}/ssh/${machine}-${id}`);
    const script = `cd ${folder} && { ${IS_RUNNING}
s=${finish ? "INT" : "HUP"}; grep -q 'has joined$' log || s=TERM
running && kill -$s $pid; while running; do sleep 0.1; done; rm -f pid join.url; cd; }; rm -rf ${quote(`${tunnels}/${id}`)}`;
    await this.connection.run(script, { timeoutMs });
  }
}

/** In the folder of a worker. Another process may have its id by now, so the arguments are checked. */
const IS_RUNNING = `running() { pid=$(cat pid 2>/dev/null) && kill -0 "$pid" 2>/dev/null && { cat "/proc/$pid/cmdline" 2>/dev/null || ps -o args= -p "$pid"; } | grep -qaF "$PWD/worker"; }`;

const joinText = ({ urls, token, caFingerprint: ca }: BrokerAccess): string =>
  urls.map((url) => joinUrl({ url, token, ...(ca === undefined ? {} : { ca }) })).join("\n");

function checkSpace({ freeKb, home }: Facts): void {
  if (freeKb < NEEDED_KB) throw sshFailed(`its disk is full: ${formatSize(freeKb * 1024)} are free in ${home}`);
}

const reasonIn = ({ text, code }: Ran): string => text.split("\n").at(-1) || `exit code ${code}`;

function splitAt(line: string, separator: string): [string, string] {
  const at = line.indexOf(separator);
  return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
}

function portOf(text: string): { readonly url: URL; readonly hostname: string; readonly port: number } {
  const url = new URL(text);
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  return { url, hostname: url.hostname.replace(/[[\]]/g, ""), port };
}
