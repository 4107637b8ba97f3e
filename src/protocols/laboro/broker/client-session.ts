/**
 * A client, at the broker: REQUESTs go to services, OPERATIONs to the broker itself. Both are answered in any order. When the connection
 * closes, pending requests are cancelled; writes to the store still happen.
 */
import { setMaxListeners } from "node:events";
import { asLaboroError } from "../../../base/errors.js";
import { type Role, roleAllows } from "../../../broker/access/roles.js";
import type { Core } from "../../../broker/core.js";
import { isPeer } from "../../../broker/group/peers.js";
import { perform, performForPeer } from "../../../broker/operations/index.js";
import type { BrokerInfo, OperationContext } from "../../../broker/operations/operation.js";
import type { JobId, RequestId } from "../../../model/ids.js";
import type { OutputChunk } from "../../../model/store.js";
import type { CloseReason, Connection } from "../connection.js";
import type { FromClient, ToClient } from "../messages.js";

/** Jobs that one client may follow. */
const MAX_FOLLOWED = 1_000;

export class ClientSession {
  readonly #core: Core;
  readonly #context: OperationContext;
  readonly #connection: Connection<FromClient, ToClient>;
  /** Requests under way, by the client's number for them. */
  readonly #requests = new Map<number, RequestId>();
  readonly #closed = new AbortController();
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
    this.#context = { role, info, signal: this.#closed.signal };
    this.#connection = connection;
    // Each pending operation listens to it.
    setMaxListeners(0, this.#closed.signal);
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
    this.#closed.abort();
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
        return;
      }
      case "OPERATION":
        void this.#perform(message.id, message.operation, message.input);
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
    if (this.#followed.has(job) || this.#followed.size >= MAX_FOLLOWED || !roleAllows(this.#context.role, "read"))
      return;
    const send = (chunk: OutputChunk): void => this.#connection.send({ ...chunk, type: "RELAY" });
    this.#followed.set(job, this.#core.relays.follow(job, send));
  }

  #request(message: FromClient & { type: "REQUEST" }): void {
    const { id } = message;
    if (!roleAllows(this.#context.role, "client")) {
      const body = Buffer.from(`a token of role ${this.#context.role} may not send requests`);
      this.#connection.send({ type: "RESPONSE", id, body, error: "LABORO_FORBIDDEN" });
      return;
    }
    let answered = false;
    const forwarded = this.#peer ? { ...message, forwarded: true } : message;
    const request = this.#core.requests.add(forwarded, (body, error) => {
      answered = true;
      this.#requests.delete(id);
      this.#connection.send({ type: "RESPONSE", id, body, ...(error === undefined ? {} : { error }) });
    });
    // It may be refused before its id is known here.
    if (!answered) this.#requests.set(id, request);
  }

  async #perform(id: number, operation: string, input: unknown): Promise<void> {
    try {
      const value = await (this.#peer ? performForPeer : perform)(this.#core, operation, input, this.#context);
      this.#connection.send({ type: "RESULT", id, value });
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      this.#connection.send({ type: "ERROR", id, code, message });
    }
  }
}
