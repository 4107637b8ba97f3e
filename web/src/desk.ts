/** What every page has at hand: the broker, what the viewer may do, where to go, and a word to the viewer. */
import { type Answer, ask, Refused, Unreachable } from "./api.js";
import type { Place } from "./place.js";
import type { Asked } from "./routes.js";

export interface Desk {
  readonly access: Answer<"access">;
  /** To another address of the dashboard; `replace` where the way back should not lead here. */
  go(address: string, replace?: boolean): void;
  /** A short word that goes by itself. */
  say(text: string, bad?: boolean): void;
  /** Look at once. */
  again(): void;
}

export interface Page {
  readonly title: string;
  readonly element: HTMLElement;
  /** The address has changed, and this page still shows it. False where it does not. */
  moved?(place: Place): boolean;
  /** What is to be looked at, again and again while the page is open. */
  look(signal: AbortSignal): Promise<void>;
  /** Milliseconds from one look to the next; a second if absent. */
  readonly everyMs?: number;
  close?(): void;
}

export type MakePage = (place: Place, desk: Desk) => Page;

/** The name may be of an operation that this broker does not have. */
export const may = (desk: Desk, name: string): boolean => desk.access.operations.includes(name);

export const wordsFor = (cause: unknown): string => {
  if (cause instanceof Refused || cause instanceof Unreachable) return cause.message;
  return cause instanceof Error ? cause.message : String(cause);
};

/** Ask for a change, and say how it went. True where it was done. */
export async function act<Name extends Asked>(
  desk: Desk,
  name: Name,
  input: Parameters<typeof ask<Name>>[1],
  done: (answer: Answer<Name>) => string,
): Promise<boolean> {
  try {
    desk.say(done(await ask(name, input)));
    return true;
  } catch (cause) {
    desk.say(wordsFor(cause), true);
    return false;
  }
}
