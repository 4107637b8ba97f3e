/**
 * The states of the protocol, by the names of the text's tables, and the effects that the state machine asks for.
 *
 *   foreman   SV_INIT0   nothing was said
 *             SV_INIT1   waits for HELLO, or for OK(nproc)
 *             SV_INIT2   has it, and owes the OK
 *             SV_LOOP0   may ask
 *             SV_LOOP1   has asked, and waits for the reply
 *             SV_LOOP2   owes the OK to an UPDATE
 *             SV_EXIT    asks nothing more
 *   worker    CL_INIT0   waits for OK(0), or has yet to say HELLO
 *             CL_INIT1   waits for the OK to its HELLO
 *             CL_LOOP0   waits for what comes
 *             CL_UPDATE0 has an UPDATE to send
 *             CL_UPDATE1 waits for the OK to it
 *             CL_EXIT0   ends in order
 *             CL_EXIT1   ends at once
 */
import type { Message, Numbered, Reply, Request } from "./messages.js";
import type { Side } from "./sequence-numbers.js";

export type Stage = "new" | "greeting" | "open" | "exit" | "exit at once";

interface StateInputs {
  readonly stage: Stage;
  readonly pendingRequest: Request["type"] | undefined;
  /** The request of the other end that is being answered. */
  readonly answering: Request["type"] | undefined;
  readonly queuedRequests: number;
}

export type StateName = ReturnType<typeof stateName>;

export const stateName = (side: Side, standing: StateInputs) =>
  side === "worker" ? ofWorker(standing) : ofForeman(standing);

function ofWorker({ stage, pendingRequest, queuedRequests }: StateInputs) {
  if (stage === "exit") return "CL_EXIT0";
  if (stage === "exit at once") return "CL_EXIT1";
  if (stage !== "open") return pendingRequest === "HELLO" ? "CL_INIT1" : "CL_INIT0";
  if (pendingRequest === "UPDATE") return "CL_UPDATE1";
  return queuedRequests > 0 ? "CL_UPDATE0" : "CL_LOOP0";
}

function ofForeman({ stage, pendingRequest, answering }: StateInputs) {
  if (stage === "new") return "SV_INIT0";
  if (stage === "greeting") return answering === "HELLO" ? "SV_INIT2" : "SV_INIT1";
  if (stage !== "open") return "SV_EXIT";
  if (answering === "UPDATE") return "SV_LOOP2";
  return pendingRequest === undefined ? "SV_LOOP0" : "SV_LOOP1";
}

/** What the state machine wants done, in this order. `Tag` is what the caller gave with its request. */
export type Effect<Tag> =
  | { readonly kind: "send"; readonly message: Message }
  /** The other end wants this; it gets its reply by `answer`. An OK(nproc) for a greeting comes as the HELLO that it stands for. */
  | { readonly kind: "request"; readonly request: Numbered<Request> }
  | { readonly kind: "reply"; readonly request: Request; readonly tag: Tag; readonly reply: Numbered<Reply> }
  /** A request was refused with ERROR(overflow): without a good reply it is to be sent again by `retry`, after a while. */
  | { readonly kind: "overflow" }
  /** The worker's time to say HELLO, by `request`. */
  | { readonly kind: "begin" }
  /** RESET: the protocol starts again. Requests without a reply are sent again after the HELLO. */
  | { readonly kind: "restarted" }
  /** The other end did something that it should not have; it was answered, or it does not matter. */
  | { readonly kind: "violation"; readonly why: string }
  /** The connection is of no use any more. */
  | { readonly kind: "broken"; readonly why: string };
