/**
 * The broker's session of a client: REQUESTs go to services, OPERATIONs to the broker itself. Both are answered in any
 * order. When the connection closes, pending requests are cancelled; writes to the store still happen.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError, type ErrorCode, LaboroError } from "../../../base/errors.js";
import { type Role, requireRole } from "../../../broker/access/tokens.js";
import type { Core } from "../../../broker/core.js";
import type { FollowControl } from "../../../broker/follows.js";
import { isPeer } from "../../../broker/group/peers.js";
import type { ConnectionAsks } from "../../../broker/operations/asks.js";
import { OPERATIONS_BY_NAME, perform, performForPeer } from "../../../broker/operations/index.js";
import { submitLarge } from "../../../broker/operations/jobs.js";
import { authorize, type BrokerInfo } from "../../../broker/operations/operation.js";
import type { JobId, RequestId } from "../../../model/ids.js";
import type { OutputChunk } from "../../../model/store.js";
import type { CloseReason, Connection } from "../connection.js";
import { type FromClient, LargeInput, type ToClient } from "../messages.js";

/** Memory of a request besides its own bytes. */
const SPARE_BYTES = 64 * 1024;

export class ClientSession {
  readonly #core: Core;
  readonly #role: Role;
  readonly #info: BrokerInfo;
  readonly #asks: ConnectionAsks;
  readonly #connection: Connection<FromClient, ToClient>;
  /** Requests in progress, by the client's number. */
  readonly #requests = new Map<number, { readonly number: RequestId; readonly bytes: number }>();
  /** Operations in progress. Each has its own signal: adding a listener to a shared one searches its listeners. */
  readonly #operations = new Map<number, OperationSignal>();
  /** When HELLO was read: what deadlines are counted from. */
  readonly #openedAt = now();
  /** By the client's number. */
  readonly #follows = new Map<number, FollowControl>();
  /** The jobs whose output is relayed to the client. */
  readonly #relays = new Map<JobId, ReturnType<Core["relays"]["follow"]>>();

  readonly #unsubscribe: (() => void) | undefined;
  /** The client is another broker of the group. */
  readonly #peer: boolean;

  constructor(
    core: Core,
    info: BrokerInfo,
    { role, name }: { readonly role: Role; readonly name: string },
    connection: Connection<FromClient, ToClient>,
  ) {
    this.#core = core;
    this.#peer = role === "admin" && isPeer(name);
    this.#role = role;
    this.#info = info;
    this.#asks = info.asks.connection(role);
    this.#connection = connection;
    this.#unsubscribe = core.group?.onChanged?.(() => this.sendBrokers());
  }

  /** The other brokers, for when this one is gone. */
  sendBrokers(): void {
    const urls = this.#core.group?.urls?.() ?? [];
    if (urls.length > 0) this.#connection.send({ type: "BROKERS", urls });
  }

  onMessages(batch: readonly FromClient[], bytes: number): void {
    const share = Math.ceil(bytes / batch.length);
    for (const message of batch) this.#receive(message, share);
  }

  onClose(_reason: CloseReason): void {
    for (const operation of this.#operations.values()) operation.abort();
    this.#unsubscribe?.();
    for (const id of [...this.#requests.keys()]) this.#cancel(id);
    for (const follow of [...this.#follows.values()]) follow.end();
  }

  #receive(message: FromClient, bytes: number): void {
    switch (message.type) {
      case "REQUEST":
        this.#request(message, bytes);
        return;
      case "CANCEL_REQUEST":
        this.#cancel(message.id);
        this.#operations.get(message.id)?.abort();
        this.#follows.get(message.id)?.end();
        return;
      case "OPERATION":
        void this.#perform(message, bytes);
        return;
      case "FOLLOW":
        this.#follow(message, bytes);
        return;
      case "FOLLOW_CREDIT":
        this.#follows.get(message.id)?.credit(message.tasks);
        return;
      case "TAKEN":
        this.#relays.get(message.job)?.taken(message, message.end);
        return;
      case "HELLO":
      case "HEARTBEAT":
        return;
    }
  }

  #follow({ id, job, has, tasks, live, relay }: FromClient & { type: "FOLLOW" }, bytes: number): void {
    const fail = (cause: unknown): void => {
      const { code, message } = asLaboroError(cause);
      this.#connection.send({ type: "ERROR", id, code, message });
    };
    let answered: () => void;
    try {
      authorize({ name: "follow", role: "read" }, this.#role);
      answered = this.#asks.begin(bytes, tasks ? 1 : 0);
    } catch (cause) {
      fail(cause);
      return;
    }
    // A client must not use a number twice. If it does, the later use replaces the earlier.
    this.#follows.get(id)?.end();
    const relayed = relay && !this.#relays.has(job) ? this.#relay(job) : undefined;
    const follow = this.#core.follows.follow({
      ...{ job, has, tasks, live },
      send: (progress) => this.#connection.send({ type: "PROGRESS", id, job, ...progress }),
      onEnd: (error) => {
        answered();
        if (this.#follows.get(id) === follow) this.#follows.delete(id);
        if (relayed !== undefined) {
          relayed.end();
          this.#relays.delete(job);
        }
        if (error !== undefined) fail(error);
      },
    });
    this.#follows.set(id, follow);
  }

  #relay(job: JobId): ReturnType<Core["relays"]["follow"]> {
    const send = (chunk: OutputChunk): void => this.#connection.send({ ...chunk, type: "RELAY" });
    const relayed = this.#core.relays.follow(job, send);
    this.#relays.set(job, relayed);
    return relayed;
  }

  #request(message: FromClient & { type: "REQUEST" }, bytes: number): void {
    const { id, service, body, pool, retry } = message;
    const timeoutMs = this.#remainingMs(message.deadline);
    if (timeoutMs <= 0) {
      this.#refuse(id, "LABORO_DEADLINE", readTooLate(`the request for ${service}`, timeoutMs));
      return;
    }
    try {
      requireRole(this.#role, "client", "a request");
      this.#asks.add(bytes);
    } catch (cause) {
      const { code, message: why } = asLaboroError(cause);
      this.#refuse(id, code, why);
      return;
    }
    let answered = false;
    const request = { service, body: ownBytes(body), pool, retry, timeoutMs, forwarded: this.#peer };
    const number = this.#core.requests.add(request, (reply, error, attachment) => {
      answered = true;
      this.#asks.remove(bytes);
      this.#requests.delete(id);
      if (error === undefined) this.#connection.send({ type: "RESPONSE", id, body: reply });
      else {
        const details = attachment instanceof Uint8Array ? attachment : undefined;
        this.#connection.send({ type: "RESPONSE", id, body: reply, error, details });
      }
    });
    // `add` may have refused it at once.
    if (!answered) this.#requests.set(id, { number, bytes });
  }

  #refuse(id: number, error: ErrorCode, why: string): void {
    this.#connection.send({ type: "RESPONSE", id, body: Buffer.from(why), error });
  }

  #cancel(id: number): void {
    const request = this.#requests.get(id);
    if (request === undefined) return;
    this.#requests.delete(id);
    this.#core.requests.cancel(request.number);
    this.#asks.remove(request.bytes);
  }

  async #perform(message: FromClient & { type: "OPERATION" }, bytes: number): Promise<void> {
    const { id, operation, input, deadline } = message;
    const waits =
      operation === "wait" || (typeof input === "object" && input !== null && "waitMs" in input && input.waitMs !== 0);
    const abort = new OperationSignal();
    const context = {
      role: this.#role,
      info: this.#info,
      get signal() {
        return abort.signal;
      },
    };
    const act = (): Promise<object> =>
      input instanceof LargeInput
        ? submitLarge(this.#core, { bytes: input.bytes, format: "msgpack" }, this.#role)
        : (this.#peer ? performForPeer : perform)(this.#core, operation, input, context);
    let end: (() => void) | undefined;
    // Another one is here only if the client has used the number twice.
    this.#operations.get(id)?.abort();
    this.#operations.set(id, abort);
    try {
      const restMs = deadline === undefined ? 1 : this.#remainingMs(deadline);
      if (restMs <= 0) throw new LaboroError("LABORO_DEADLINE", readTooLate(`the operation ${operation}`, restMs));
      end = this.#asks.begin(bytes, waits && operation !== "wait" ? 1 : 0);
      const reads = !waits && OPERATIONS_BY_NAME.get(operation)?.method === "GET";
      this.#connection.send({ type: "RESULT", id, value: await (reads ? this.#asks.read(act) : act()) });
    } catch (cause) {
      const { code, message: why } = asLaboroError(cause);
      this.#connection.send({ type: "ERROR", id, code, message: why });
    } finally {
      end?.();
      if (this.#operations.get(id) === abort) this.#operations.delete(id);
    }
  }

  #remainingMs(deadline: number): number {
    return this.#openedAt + deadline - now();
  }
}

/** Aborts an operation. Most never use their signal, which is costly to create. */
class OperationSignal {
  #aborted = false;
  #controller: AbortController | undefined;

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#aborted) this.#controller.abort();
    return this.#controller.signal;
  }

  abort(): void {
    this.#aborted = true;
    this.#controller?.abort();
  }
}

const readTooLate = (what: string, restMs: number): string =>
  `${what} was read ${Math.round(-restMs)} ms after its deadline and was not begun`;

/** A body is a view into its frame. A body that is kept must not keep a much larger frame in memory. */
const ownBytes = (body: Uint8Array): Uint8Array =>
  body.buffer.byteLength > 2 * body.length + SPARE_BYTES ? new Uint8Array(body) : body;
