/**
 * A client, at the broker: REQUESTs go to services, ASKs to the broker's own operations. Both are answered in any order. When the
 * connection closes, nobody waits any more, and what is under way is forgotten; what was asked of the store still happens.
 */
import { setMaxListeners } from "node:events";
import { asLaboroError } from "../../../base/errors.js";
import { roleAllows, type Role } from "../../../broker/access/roles.js";
import type { Core } from "../../../broker/core.js";
import { isPeer } from "../../../broker/group/peers.js";
import { perform, performForPeer } from "../../../broker/operations/index.js";
import type { BrokerInfo, OperationContext } from "../../../broker/operations/operation.js";
import type { RequestId } from "../../../model/ids.js";
import type { CloseReason, Connection } from "../connection.js";
import type { FromClient, ToClient } from "../messages.js";

export class ClientSession {
  readonly #core: Core;
  readonly #context: OperationContext;
  readonly #connection: Connection<FromClient, ToClient>;
  /** Requests under way, by the client's number for them. */
  readonly #requests = new Map<number, RequestId>();
  readonly #gone = new AbortController();

  readonly #unsubscribe: (() => void) | undefined;
  /** The client is another broker of the group. */
  readonly #peer: boolean;

  constructor(
    core: Core,
    broker: BrokerInfo,
    { role, name }: { readonly role: Role; readonly name: string },
    connection: Connection<FromClient, ToClient>,
  ) {
    this.#core = core;
    this.#peer = role === "admin" && isPeer(name);
    this.#context = { role, info: broker, signal: this.#gone.signal };
    this.#connection = connection;
    // As many may wait for its end as are asked at one time.
    setMaxListeners(0, this.#gone.signal);
    this.#unsubscribe = core.group?.onChanged?.(() => this.sendBrokers());
  }

  /** Where it finds the other brokers, should this one go. */
  sendBrokers(): void {
    const urls = this.#core.group?.urls?.() ?? [];
    if (urls.length > 0) this.#connection.send({ type: "BROKERS", urls });
  }

  onMessages(batch: readonly FromClient[]): void {
    for (const message of batch) this.#receive(message);
  }

  onClose(_reason: CloseReason): void {
    this.#gone.abort();
    this.#unsubscribe?.();
    for (const id of this.#requests.values()) this.#core.cancelRequest(id);
    this.#requests.clear();
  }

  #receive(message: FromClient): void {
    switch (message.type) {
      case "REQUEST":
        this.#request(message);
        return;
      case "FORGET": {
        const id = this.#requests.get(message.id);
        this.#requests.delete(message.id);
        if (id !== undefined) this.#core.cancelRequest(id);
        return;
      }
      case "ASK":
        void this.#ask(message.id, message.operation, message.input);
        return;
      case "HELLO":
      case "BEAT":
        return;
    }
  }

  #request(message: FromClient & { type: "REQUEST" }): void {
    const { id } = message;
    if (!roleAllows(this.#context.role, "client")) {
      const body = Buffer.from(`a token of role ${this.#context.role} may not ask services`);
      this.#connection.send({ type: "REPLIED", id, body, error: "LABORO_FORBIDDEN" });
      return;
    }
    let answered = false;
    const asking = this.#peer ? { ...message, sentOn: true } : message;
    const request = this.#core.request(asking, (body, error) => {
      answered = true;
      this.#requests.delete(id);
      this.#connection.send({ type: "REPLIED", id, body, ...(error === undefined ? {} : { error }) });
    });
    // A refusal may come before the number is known here.
    if (!answered) this.#requests.set(id, request);
  }

  async #ask(id: number, operation: string, input: unknown): Promise<void> {
    try {
      const value = await (this.#peer ? performForPeer : perform)(this.#core, operation, input, this.#context);
      this.#connection.send({ type: "ANSWER", id, value });
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      this.#connection.send({ type: "REFUSE", id, code, message });
    }
  }
}
