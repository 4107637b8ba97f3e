/**
 * fuq over HTTP: /hello and cookies for workers, tasks for polling workers, and the requests of fuq's client. The
 * password is a token of this broker, commonly the one of role `fuq`.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { asLaboroError, type ErrorCode } from "../../../../base/errors.js";
import { type Auth, isRefusal } from "../../../../broker/access/auth.js";
import { type RequiredRole, type Role, roleAllows } from "../../../../broker/access/tokens.js";
import type { ListenerContext } from "../../../../broker/listeners/listener.js";
import { OPERATIONS, type OperationOutput, perform } from "../../../../broker/operations/index.js";
import type { BrokerInfo } from "../../../../broker/operations/operation.js";
import { COUNT_LIMIT, STATUSES, type Task } from "../../messages.js";
import { upgradeToWebSocket } from "../listener.js";
import {
  jobClear,
  jobList,
  jobNew,
  jobState,
  nodesList,
  nodesShutdown,
  type PerformOperation,
  shutdown,
} from "./client-requests.js";
import { badRequest, HttpError, JsonFields, readJsonBody, sendError, sendJson } from "./json-http.js";
import { type FuqNode, type NodeInfo, Nodes, setCookie } from "./nodes.js";
import { type PollAnswer, PollingWorker, type PollSource } from "./polling-worker.js";

interface FuqHttpContext extends ListenerContext {
  readonly auth: Auth;
  readonly info: BrokerInfo;
}

const PERSISTENT = "/node/persistent";
const MAX_NAME = 256;
const MAX_TAGS = 100;

/** The answer to a polling worker that is to stop. */
const STOP: Task = {
  task: -1,
  job: { jobId: 0, name: "::stop::", numTasks: 0, workingDir: "", loggingDir: "", command: "", status: 0 },
};

type RequestHandler = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

export class FuqHttp {
  readonly #context: FuqHttpContext;
  readonly #nodes: Nodes;
  readonly #polling = new WeakMap<FuqNode, PollingWorker>();
  readonly #postHandlers: ReadonlyMap<string, RequestHandler>;

  constructor(context: FuqHttpContext) {
    const { core } = context;
    const nodes = new Nodes(core);
    this.#context = context;
    this.#nodes = nodes;
    this.#postHandlers = new Map<string, RequestHandler>([
      ["/hello", (request, response) => this.#hello(request, response, false)],
      ["/node/reauth", (request, response) => this.#hello(request, response, true)],
      ["/job/request", this.#forWorker((worker, given, source) => worker.request(given.integer("nproc"), source))],
      ["/job/update", this.#forWorker(update)],
      // The path that older workers use.
      ["/job/status", this.#forWorker(update)],
      ["/client/job/new", this.#forClient(jobNew)],
      ["/client/job/list", this.#forClient(jobList)],
      ["/client/job/state", this.#forClient(jobState)],
      ["/client/job/clear", this.#forClient(jobClear)],
      ["/client/nodes/list", this.#forClient((_ask, given) => nodesList(core, nodes, given))],
      // fuq's workers stop themselves with it, and have only a worker's password.
      ["/client/nodes/shutdown", this.#forClient((_ask, given) => nodesShutdown(core, nodes, given), "worker")],
      ["/client/shutdown", this.#forClient(() => shutdown(core, nodes), OPERATIONS.stop.role)],
    ]);
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const nodeOf = async (): Promise<FuqNode> => {
      await this.#refuseMisplaced(request);
      return this.#findNode(request);
    };
    return upgradeToWebSocket(this.#context, nodeOf, request, socket, head);
  }

  /** The node of the request's cookie. Throws 401 or 403. */
  async #findNode(request: IncomingMessage, cookie?: string): Promise<FuqNode> {
    const node = await this.#nodes.findByCookie(request.headers.cookie, cookie);
    this.#context.guard.authenticated(request.socket);
    return node;
  }

  async handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    try {
      await this.#refuseMisplaced(request);
      const handler = path === PERSISTENT ? this.#persistent : this.#postHandlers.get(path);
      if (handler === undefined) throw new HttpError(404, "404 page not found");
      const { method } = request;
      if (method !== (path === PERSISTENT ? "GET" : "POST"))
        throw new HttpError(405, `405 method ${method} not allowed`);
      await handler(request, response);
    } catch (cause) {
      const refused = cause instanceof HttpError ? cause : this.#refusal(request, path, cause);
      if (response.headersSent) response.destroy();
      else sendError(response, refused);
    }
  }

  #refusal(request: IncomingMessage, path: string, cause: unknown): HttpError {
    const { code, message } = asLaboroError(cause);
    this.#reportPeerError(request, code, `${path}: ${message}`);
    if (code === "LABORO_NO_SUCH_JOB" || code === "LABORO_BAD_INPUT") return new HttpError(400);
    return new HttpError(code === "LABORO_FORBIDDEN" ? 403 : 500);
  }

  #reportPeerError(request: IncomingMessage, code: ErrorCode, why: string): void {
    this.#context.peerErrors.report("main", request.socket.remoteAddress ?? "unknown", code, why);
  }

  async #refuseMisplaced(request: IncomingMessage): Promise<void> {
    const misplaced = this.#context.auth.checkTransport(request);
    if (misplaced === undefined) return;
    await misplaced.sendAfter;
    throw new HttpError(misplaced.status, misplaced.why);
  }

  async #admit(request: IncomingMessage, password: string, needed: RequiredRole): Promise<Role> {
    const admitted = this.#context.auth.authenticateToken(request, password);
    if (isRefusal(admitted)) {
      await admitted.sendAfter;
      this.#reportPeerError(request, admitted.code, "the password is not a token of this broker");
      if (admitted.status === 429) throw new HttpError(429, admitted.why);
    } else if (roleAllows(admitted.role, needed)) return admitted.role;
    throw new HttpError(403);
  }

  /** /hello. /node/reauth has the same in an envelope, with the cookie that it renews. */
  async #hello(request: IncomingMessage, response: ServerResponse, renews: boolean): Promise<void> {
    const given = await readJsonBody(request);
    const hello = renews ? (given.object("msg") ?? new JsonFields({})) : given;
    const info = nodeInfo(hello);
    await this.#admit(request, hello.text("auth"), "worker");
    const registered = renews ? this.#nodes.renew(given.text("cookie"), info) : this.#nodes.register(info);
    const { node, cookie } = await registered;
    const Session = await this.#nodes.session();
    sendJson(response, { Name: node.info.uniqueName, Session, Cookie: cookie }, setCookie(cookie));
  }

  /** A WebSocket comes as an upgrade. A plain request for its path is refused. */
  readonly #persistent: RequestHandler = async (request) => {
    await this.#findNode(request);
    throw badRequest();
  };

  #forWorker(
    find: (worker: PollingWorker, given: JsonFields, source: PollSource) => Promise<PollAnswer>,
  ): RequestHandler {
    return async (request, response) => {
      const envelope = await readJsonBody(request);
      const node = await this.#findNode(request, envelope.text("cookie"));
      // Older workers put the request in an envelope, and some their cookie nowhere else.
      const given = envelope.object("msg") ?? envelope;
      const worker = this.#pollingWorker(node);
      // The listener closes idle connections. This one must stay open, because it shows that the worker is there.
      response.once("finish", () => request.socket.setTimeout(0));
      const work = await find(worker, given, { socket: request.socket, signal: closeSignal(response) });
      if (response.destroyed) worker.answerNotSent(work);
      else {
        response.once("close", () => {
          if (!response.writableFinished) worker.answerNotSent(work);
        });
        sendJson(response, (work === "stop" ? [STOP] : work).map(taskJson));
      }
    };
  }

  #pollingWorker(node: FuqNode): PollingWorker {
    const { core, settings } = this.#context;
    const worker = this.#polling.get(node) ?? new PollingWorker(core, node, settings.pool);
    this.#polling.set(node, worker);
    return worker;
  }

  #forClient(
    act: (ask: PerformOperation, given: JsonFields) => Promise<unknown>,
    needed: RequiredRole = "client",
  ): RequestHandler {
    return async (request, response) => {
      const given = await readJsonBody(request);
      const role = await this.#admit(request, given.object("auth")?.text("password") ?? "", needed);
      sendJson(response, await act(this.#performAs(role, response), given.object("msg") ?? new JsonFields({})));
    };
  }

  #performAs(role: Role, response: ServerResponse): PerformOperation {
    const { core, info } = this.#context;
    const context = { role, info, signal: closeSignal(response) };
    return async (name, input) => (await perform(core, name, input, context)) as OperationOutput<typeof name>;
  }
}

async function update(worker: PollingWorker, given: JsonFields, source: PollSource): Promise<PollAnswer> {
  const newJob = given.object("newjob");
  const reported = {
    jobId: given.integer("job_id"),
    task: given.integer("task"),
    success: given.flag("success"),
    status: given.text("status"),
    newJob: newJob === undefined ? null : { numProc: newJob.integer("nproc") },
  };
  const work = await worker.update(reported, source);
  // The original knows ::stop:: only as the answer to /job/request, and would run it here. It asks again after [].
  return work === "stop" ? [] : work;
}

function nodeInfo(given: JsonFields): NodeInfo {
  const info = {
    node: given.text("node"),
    pid: given.integer("pid"),
    uniqueName: given.text("unique_name"),
    tags: given.texts("tags"),
    nproc: given.integer("nproc"),
  };
  const names = [info.node, info.uniqueName, ...info.tags];
  if (info.node === "" || names.some((name) => name.length > MAX_NAME)) throw badRequest();
  if (info.tags.length > MAX_TAGS || info.nproc < 0 || info.nproc > COUNT_LIMIT) throw badRequest();
  return info;
}

const taskJson = ({ task, job }: Task) => ({
  task,
  job_id: job.jobId,
  name: job.name,
  num_tasks: job.numTasks,
  working_dir: job.workingDir,
  logging_dir: job.loggingDir,
  command: job.command,
  status: STATUSES[job.status],
});

/** Aborted when the client no longer waits for the answer. */
function closeSignal(response: ServerResponse): AbortSignal {
  const closed = new AbortController();
  response.once("close", () => closed.abort());
  return closed.signal;
}
