/**
 * The process that keeps the connections of `laboro ssh start`: one for each user and data directory, in the
 * background. Verbs talk to it over a Unix socket, one request on each connection. It ends when it has no machine left.
 *
 *     request    one line of JSON, a KeeperRequest
 *     answers    lines of JSON: {status} for each change until the request is done, then {done} with all statuses,
 *                or {error}
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { asLaboroError, type ErrorCode, errnoOf, LaboroError } from "../../../base/errors.js";
import { acquireLock } from "../../../base/files/lock.js";
import { openPrivateDirectory } from "../../../base/files/private-directory.js";
import { packageRoot } from "../../../base/package.js";
import { type SshHost, sshFailed } from "./connection.js";
import { type HostStatus, SshWorkers, type SshWorkersOptions } from "./workers.js";

export interface KeptMachine extends HostStatus {
  readonly brokers: readonly string[];
}

type KeeperRequest =
  | { readonly ask: "start"; readonly hosts: readonly SshHost[]; readonly env: SshEnv; readonly options: StartOptions }
  | { readonly ask: "list" }
  | { readonly ask: "stop"; readonly hosts: readonly string[] | "all"; readonly finish: boolean };

type StartOptions = Omit<SshWorkersOptions, "onChange">;
type SshEnv = Readonly<Record<string, string>>;

type Answer =
  | { readonly status: HostStatus }
  | { readonly done: readonly KeptMachine[] }
  | { readonly error: string; readonly code: ErrorCode };

/** What ssh needs of the caller's environment. The last caller's counts. */
const ENV_NAMES = ["LABORO_SSH", "SSH_AUTH_SOCK", "PATH"];

export const sshEnvironment = (): SshEnv =>
  Object.fromEntries(ENV_NAMES.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])));

/** Not in the data directory, whose path may be too long for a socket. */
function socketOf(data: string): string {
  const folder = join(tmpdir(), `laboro-${userInfo().uid}`);
  openPrivateDirectory(folder);
  return join(folder, `keeper-${createHash("sha256").update(resolve(data)).digest("hex").slice(0, 12)}`);
}

/** Sends a request to the keeper of this data directory. Undefined if there is none and `begin` does not start one. */
export async function askKeeper(
  data: string,
  request: KeeperRequest,
  {
    begin = false,
    onStatus = () => {},
  }: { readonly begin?: boolean; readonly onStatus?: (status: HostStatus) => void },
): Promise<readonly KeptMachine[] | undefined> {
  const path = socketOf(data);
  let socket = await connected(path);
  if (socket === undefined && begin) {
    await spawnKeeper(data);
    socket = await connected(path);
    if (socket === undefined) throw sshFailed("the process that keeps the connections has ended at once");
  }
  if (socket === undefined) return undefined;
  socket.write(`${JSON.stringify(request)}\n`);
  for await (const line of createInterface({ input: socket })) {
    const answer = JSON.parse(line) as Answer;
    if ("status" in answer) onStatus(answer.status);
    else if ("done" in answer) return answer.done;
    else throw new LaboroError(answer.code, answer.error);
  }
  throw sshFailed("the process that keeps the connections has ended");
}

function connected(path: string): Promise<Socket | undefined> {
  return new Promise((settle, reject) => {
    const socket = connect(path, () => settle(socket));
    socket.once("error", (cause) => {
      if (["ENOENT", "ECONNREFUSED"].includes(errnoOf(cause) ?? "")) settle(undefined);
      else reject(cause);
    });
  });
}

/** Resolves when it listens, or has found that another one does. */
async function spawnKeeper(data: string): Promise<void> {
  const program = fileURLToPath(new URL("bin/laboro", packageRoot()));
  const args = [program, "ssh", "keep", "--data", resolve(data)];
  const child = spawn(process.execPath, args, { detached: true, cwd: "/", stdio: ["ignore", "pipe", "ignore"] });
  await new Promise((settle, reject) => {
    child.once("error", reject);
    child.stdout.once("data", settle).once("close", settle);
  });
  child.stdout.destroy();
  child.unref();
}

/** `laboro ssh keep`, which only `start` calls. */
export async function keep(data: string): Promise<void> {
  const path = socketOf(data);
  let lock: ReturnType<typeof acquireLock>;
  try {
    lock = acquireLock(`${path}.lock`, "the ssh connections of this user");
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE") return;
    throw cause;
  }
  fs.rmSync(path, { force: true });
  const keeper = new Keeper();
  const server = createServer((socket) => {
    socket.on("error", () => {});
    createInterface({ input: socket }).once("line", (line) => {
      void keeper.answer(JSON.parse(line) as KeeperRequest, socket).then(() => {
        socket.end();
        if (!keeper.isEmpty) return;
        server.close();
        fs.rmSync(path, { force: true });
        lock.release();
        process.exit();
      });
    });
  });
  await new Promise<void>((settle) => server.listen(path, settle));
  process.stdout.write("ready\n");
  for (const signal of ["SIGINT", "SIGHUP"] as const) process.on(signal, () => {});
}

class Keeper {
  /** By the options that they were started with. */
  readonly #groups = new Map<string, { readonly options: StartOptions; readonly workers: SshWorkers }>();
  readonly #listeners = new Set<(status: HostStatus) => void>();
  #requests = 0;

  get isEmpty(): boolean {
    return this.#requests === 0 && this.#machines().every(({ state }) => state === "failed" || state === "stopped");
  }

  async answer(request: KeeperRequest, socket: Socket): Promise<void> {
    const send = (answer: Answer): void => void socket.write(`${JSON.stringify(answer)}\n`);
    const onStatus = (status: HostStatus): void => send({ status });
    this.#listeners.add(onStatus);
    this.#requests++;
    try {
      if (request.ask === "start") send({ done: await this.#start(request) });
      else if (request.ask === "list") send({ done: this.#machines() });
      else send({ done: await this.#stop(request) });
    } catch (cause) {
      const { message, code } = asLaboroError(cause);
      send({ error: message, code });
    } finally {
      this.#requests--;
      this.#listeners.delete(onStatus);
    }
  }

  async #start({ hosts, env, options }: Extract<KeeperRequest, { ask: "start" }>): Promise<readonly KeptMachine[]> {
    Object.assign(process.env, env);
    const key = JSON.stringify(options);
    const taken = this.#machines(key).filter(({ state }) => state !== "failed" && state !== "stopped");
    const other = taken.find(({ host }) => hosts.some(({ label }) => label === host));
    if (other !== undefined)
      throw sshFailed(
        `${other.host} has a worker already that was started in another way: laboro ssh stop ${other.host}`,
      );
    const group = this.#groups.get(key) ?? {
      options,
      workers: new SshWorkers({
        ...options,
        onChange: (status) => {
          for (const listener of this.#listeners) listener(status);
        },
      }),
    };
    this.#groups.set(key, group);
    const { brokers } = { brokers: options.access.urls };
    return (await group.workers.start(hosts)).map((status) => ({ ...status, brokers }));
  }

  async #stop({ hosts, finish }: Extract<KeeperRequest, { ask: "stop" }>): Promise<readonly KeptMachine[]> {
    const known = this.#machines();
    const wanted = hosts === "all" ? known : known.filter(({ host }) => hosts.includes(host));
    const labels = wanted.map(({ host }) => host);
    const unknown = hosts === "all" ? undefined : hosts.find((label) => !labels.includes(label));
    if (unknown !== undefined) throw sshFailed(`${unknown} is not in laboro ssh list`);
    await Promise.all([...this.#groups.values()].map(({ workers }) => workers.stop(labels, { finish })));
    return wanted.map((machine) => ({ ...machine, state: "stopped" }));
  }

  /** `except`: without this group. */
  #machines(except?: string): readonly KeptMachine[] {
    return [...this.#groups].flatMap(([key, { options, workers }]) =>
      key === except ? [] : workers.statuses.map((status) => ({ ...status, brokers: options.access.urls })),
    );
  }
}
