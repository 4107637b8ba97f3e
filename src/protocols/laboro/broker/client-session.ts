/**
 * A client, at the broker: REQUESTs go to services, OPERATIONs to the broker itself. Both are answered in any order. When the connection
 * closes, pending requests are cancelled; writes to the store still happen.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError, type ErrorCode, LaboroError } from "../../../base/errors.js";
import { type Role, roleAllows } from "../../../broker/access/roles.js";
import type { Core } from "../../../broker/core.js";
import { isPeer } from "../../../broker/group/peers.js";
import { perform, performForPeer } from "../../../broker/operations/index.js";
import type { BrokerInfo } from "../../../broker/operations/operation.js";
import type { JobId, RequestId } from "../../../model/ids.js";
import type { OutputChunk } from "../../../model/store.js";
import type { CloseReason, Connection } from "../connection.js";
import type { FromClient, ToClient } from "../messages.js";

/** Jobs that one client may follow. */
const MAX_FOLLOWED = 1_000;

export class ClientSession {
  readonly #core: Core;
  readonly #role: Role;
  readonly #info: BrokerInfo;
  readonly #connection: Connection<FromClient, ToClient>;
  /** Requests under way, by the client's number for them. */
  readonly #requests = new Map<number, RequestId>();
  /** Operations under way, likewise. */
  readonly #operations = new Map<number, AbortController>();
  /** When HELLO was read: what deadlines are counted from. */
  readonly #openedAt = now();
  /** The jobs whose output is relayed to the client. */
  readonly #followed = new Map<JobId, ReturnType<Core["relays"]["follow"]>>();

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
    this.#connection = connection;
    this.#unsubscribe = core.group?.onChanged?.(() => this.sendBrokers());
  }

  /** The other brokers, for when this one is gone. */
  sendBrokers(): void {
    const urls = this.#core.group?.urls?.() ?? [];
    if (urls.length > 0) this.#connection.send({ type: "BROKERS", urls });
  }

  onMessages(batch: readonly FromClient[]): void {
    for (const message of batch) this.#receive(message);
  }

  onClose(_reason: CloseReason): void {
    for (const operation of this.#operations.values()) operation.abort();
    this.#unsubscribe?.();
    for (const id of this.#requests.values()) this.#core.requests.cancel(id);
    this.#requests.clear();
    for (const { end } of this.#followed.values()) end();
    this.#followed.clear();
  }

  #receive(message: FromClient): void {
    switch (message.type) {
      case "REQUEST":
        this.#request(message);
        return;
      case "CANCEL_REQUEST": {
        const id = this.#requests.get(message.id);
        this.#requests.delete(message.id);
        if (id !== undefined) this.#core.requests.cancel(id);
        this.#operations.get(message.id)?.abort();
        return;
      }
      case "OPERATION":
        void this.#perform(message);
        return;
      case "FOLLOW":
        this.#follow(message.job);
        return;
      case "TAKEN":
        this.#followed.get(message.job)?.taken(message, message.end);
        return;
      case "HELLO":
      case "HEARTBEAT":
        return;
    }
  }

  #follow(job: JobId): void {
    if (this.#followed.has(job) || this.#followed.size >= MAX_FOLLOWED || !roleAllows(this.#role, "read")) return;
    const send = (chunk: OutputChunk): void => this.#connection.send({ ...chunk, type: "RELAY" });
    this.#followed.set(job, this.#core.relays.follow(job, send));
  }

  #request(message: FromClient & { type: "REQUEST" }): void {
    const { id, service, body, pool, retry, deadline } = message;
    const refuse = (error: ErrorCode, text: string): void =>
      this.#connection.send({ type: "RESPONSE", id, body: Buffer.from(text), error });
    const timeoutMs = this.#remainingMs(deadline);
    if (!roleAllows(this.#role, "client")) {
      refuse("LABORO_FORBIDDEN", `a token of role ${this.#role} may not send requests`);
      return;
    }
    if (timeoutMs <= 0) {
      refuse("LABORO_DEADLINE", readTooLate(`the request for ${service}`, timeoutMs));
      return;
    }
    let answered = false;
    const forwarded = this.#peer ? { forwarded: true } : {};
    const request = this.#core.requests.add({ service, body, pool, retry, timeoutMs, ...forwarded }, (body, error) => {
      answered = true;
      this.#requests.delete(id);
      this.#connection.send({ type: "RESPONSE", id, body, ...(error === undefined ? {} : { error }) });
    });
    // It may be refused before its id is known here.
    if (!answered) this.#requests.set(id, request);
  }

  async #perform({ id, operation, input, deadline }: FromClient & { type: "OPERATION" }): Promise<void> {
    const abort = new AbortController();
    this.#operations.set(id, abort);
    try {
      const restMs = deadline === undefined ? 1 : this.#remainingMs(deadline);
      if (restMs <= 0) throw new LaboroError("LABORO_DEADLINE", readTooLate(`the operation ${operation}`, restMs));
      const context = { role: this.#role, info: this.#info, signal: abort.signal };
      const value = await (this.#peer ? performForPeer : perform)(this.#core, operation, input, context);
      this.#connection.send({ type: "RESULT", id, value });
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      this.#connection.send({ type: "ERROR", id, code, message });
    } finally {
      this.#operations.delete(id);
    }
  }

  #remainingMs(deadline: number): number {
    return this.#openedAt + deadline - now();
  }
}

const readTooLate = (what: string, restMs: number): string =>
  `${what} was read ${Math.round(-restMs)} ms after its deadline and was not begun`;
