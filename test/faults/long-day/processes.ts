/**
 * The workers of the long day, each a process, but those of the round-robin queue, whose command line has no commands of one's own. Each of
 * an old protocol stays with one broker, as it always does.
 */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RoundRobinWorker } from "../../../src/protocols/round-robin/worker/worker.js";
import { laboro } from "../../cli/support/cli.js";
import { freePort } from "../../support/free-port.js";
import { DEADLINE_MS, type GroupSite } from "../../support/group-site.js";
import { LABORO, type Launched } from "../../support/launched.js";
import { NO_SSHD, openSshd, type Sshd } from "../../support/sshd.js";

export const BROKERS = ["a", "b", "c"] as const;
export type BrokerName = (typeof BROKERS)[number];
const HANDLERS = fileURLToPath(new URL("./handlers.mjs", import.meta.url));
const LISTENERS = { fuq: 1, fuq1: 1, runexp: 1, "round-robin": 1, scale0: 3 };
type ListenerName = keyof typeof LISTENERS;
type Ports = Readonly<Record<BrokerName, Readonly<Record<ListenerName, readonly number[]>>>>;
/** Started over ssh. */
const MACHINE = "one";

export class Processes {
  readonly #group: GroupSite;
  readonly #ports: Ports;
  readonly #processes = new Map<string, Launched>();
  readonly #roundRobin: RoundRobinWorker[] = [];
  #sshd: Sshd | undefined;
  #ssh: ((...words: string[]) => ReturnType<typeof laboro>) | undefined;

  private constructor(group: GroupSite, ports: Ports) {
    this.#group = group;
    this.#ports = ports;
  }

  /** Three brokers with all listeners, and workers of every kind. */
  static async open(group: GroupSite): Promise<Processes> {
    const portsOf = async () => {
      const ports: Partial<Record<ListenerName, number[]>> = {};
      for (const [name, count] of Object.entries(LISTENERS))
        ports[name as ListenerName] = await Promise.all(Array.from({ length: count }, freePort));
      return ports as Record<ListenerName, number[]>;
    };
    const processes = new Processes(group, { a: await portsOf(), b: await portsOf(), c: await portsOf() });
    // The first one makes the tables.
    await processes.broker("a");
    await Promise.all([processes.broker("b"), processes.broker("c")]);
    await Promise.all([
      ...Object.keys(processes.#starts()).map((name) => processes.start(name)),
      ...(["a", "b"] as const).map((name) => processes.#openRoundRobin(name)),
      ...(NO_SSHD === undefined ? [processes.#openSsh()] : []),
    ]);
    return processes;
  }

  port(broker: BrokerName, listener: ListenerName, at = 0): number {
    return this.#ports[broker][listener][at] ?? 0;
  }

  /** Starts it, or starts it again. */
  async broker(name: BrokerName): Promise<void> {
    const more = Object.entries(this.#ports[name]).flatMap(([listener, ports]) => [
      "--protocol",
      `${listener}=${ports.join(",")}`,
    ]);
    await this.#group.broker(name, { more: [...more, "--rr-service", "reverse=rr.reverse"] });
  }

  password(broker: BrokerName): string {
    const file = join(this.#group.dataOf(broker), "tokens.json");
    const tokens = JSON.parse(readFileSync(file, "utf8")) as { role: string; token: string }[];
    return tokens.find(({ role }) => role === "fuq")?.token ?? "";
  }

  /** Starts the worker, or starts it again in its old directory. */
  async start(name: string): Promise<void> {
    const { args = [], env, says = "joined" } = this.#starts()[name] ?? {};
    const dir = this.#group.site.path(name);
    mkdirSync(dir, { recursive: true });
    const launched = this.#group.site.launch(`worker ${name}`, [LABORO, ...args], { env: { ...env, HOME: dir } });
    this.#processes.set(name, launched);
    await launched.says(says, DEADLINE_MS);
  }

  async killAndStart(...names: readonly string[]): Promise<void> {
    await Promise.all(names.map((name) => this.#processes.get(name)?.end("SIGKILL")));
    await Promise.all(names.map((name) => this.start(name)));
  }

  /** The connection of the worker over ssh ends without a word. */
  cutSsh(): void {
    this.#sshd?.cut(MACHINE);
  }

  get #sshTmp(): string {
    return this.#group.site.path("ssh");
  }

  get processes(): readonly Launched[] {
    return [...this.#processes.values()];
  }

  /** All leave in order. */
  async leave(): Promise<void> {
    if (this.#ssh !== undefined) {
      const { code, stderr } = await this.#ssh("stop", "all");
      if (code !== 0) throw new Error(`ssh stop: ${stderr}`);
      // But for the folder of the user's sockets.
      const left = readdirSync(this.#sshTmp).filter((name) => name !== `laboro-${userInfo().uid}`);
      if (left.length > 0) throw new Error(`ssh stop leaves ${left.join(", ")}`);
    }
    await Promise.all(this.#roundRobin.map((worker) => worker.close()));
    await Promise.all(this.processes.map((one) => one.end("SIGTERM")));
  }

  #starts(): Readonly<Record<string, { args: readonly string[]; env?: NodeJS.ProcessEnv; says?: string }>> {
    const { site } = this.#group;
    const ours = (name: string, broker: BrokerName, slots: number, ...more: string[]) => {
      const join = `@${this.#group.dataOf(broker)}/join.url`;
      const place = ["--join", join, "--dir", site.path(name), "--name", name, "--slots", String(slots)];
      return { args: ["worker", ...place, "--tag", "ours", ...more] };
    };
    const fuq = (name: string, ...more: string[]) => ["worker", ...more, "--dir", site.path(name), "--slots", "1"];
    const at = (broker: BrokerName, listener: ListenerName, place = 0) =>
      `127.0.0.1:${this.port(broker, listener, place)}`;
    const foreman = (broker: BrokerName) => ({ LABORO_FUQ_TOKEN: this.password(broker) });
    const url = (broker: BrokerName) => this.#group.access(broker).url;
    const runner = ["runner", "2", "-c", at("b", "runexp"), "-h", "runner", "--stay"];
    const scale0 = ["scale0", "worker", "--broker", `tcp://${at("c", "scale0", 1)}`, "--name", "scale0"];
    return {
      first: ours("first", "a", 2, "--service", "shout=tr a-z A-Z"),
      second: ours("second", "b", 2),
      // Never killed: what it runs at the same time is counted.
      steady: ours("steady", "c", 4, "--tag", "steady", "--handlers", HANDLERS),
      "fuq-web": { args: fuq("fuq-web", "--fuq", url("a")), env: foreman("a") },
      "fuq-poll": { args: fuq("fuq-poll", "--fuq", url("c"), "--fuq-poll"), env: foreman("c") },
      "fuq-raw": { args: fuq("fuq-raw", "--fuq-raw", at("b", "fuq")) },
      "fuq-v1": { args: fuq("fuq-v1", "--fuq1", at("a", "fuq1")) },
      runner: { args: [...runner, "--data", site.path("runner")], says: "Joining the queue manager" },
      scale0: {
        args: [...scale0, "--keep-trying", "--dir", site.path("scale0-bodies"), "--service", "echo=cat"],
        says: "is registered with",
      },
    };
  }

  async #openRoundRobin(broker: BrokerName): Promise<void> {
    const worker = await RoundRobinWorker.open({
      url: `tcp://127.0.0.1:${this.port(broker, "round-robin")}`,
      slots: 4,
      reconnectMs: 100,
      commands: { reverse: ([text = Buffer.alloc(0)]) => [Buffer.from(text).reverse()] },
    });
    await worker.register();
    this.#roundRobin.push(worker);
  }

  async #openSsh(): Promise<void> {
    const { site } = this.#group;
    const sshd = await openSshd();
    this.#sshd = sshd;
    await sshd.machine(MACHINE);
    mkdirSync(this.#sshTmp);
    const env = {
      LABORO_DATA: this.#group.dataOf("b"),
      HOME: site.dir,
      LABORO_SSH: sshd.command,
      TMPDIR: this.#sshTmp,
    };
    this.#ssh = (...words) => laboro(["ssh", ...words], { env });
    const { code, stderr } = await this.#ssh("start", `${MACHINE}/2`, "--stay");
    if (code !== 0) throw new Error(`ssh start: ${stderr}`);
  }
}
