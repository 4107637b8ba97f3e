/** What every page has at hand: the broker, what the viewer may do, where to go, and a word to the viewer. */
import { type Answer, ask, ApiError, Unreachable } from "./api.js";
import type { Route } from "./route.js";
import type { ApiOperation } from "./api-routes.js";

export interface PageContext {
  readonly access: Answer<"access">;
  /** To another address of the dashboard; `replace` where the way back should not lead here. */
  navigate(address: string, replace?: boolean): void;
  /** A short word that goes by itself. */
  notify(text: string, bad?: boolean): void;
  /** Look at once. */
  refresh(): void;
}

export interface Page {
  readonly title: string;
  readonly element: HTMLElement;
  /** The address has changed, and this page still shows it. False where it does not. */
  onNavigate?(route: Route): boolean;
  /** What is to be looked at, again and again while the page is open. */
  refresh(signal: AbortSignal): Promise<void>;
  /** Milliseconds from one look to the next; a second if absent. */
  readonly refreshMs?: number;
  close?(): void;
}

export type PageFactory = (route: Route, context: PageContext) => Page;

/** The name may be of an operation that this broker does not have. */
export const isAllowed = (context: PageContext, name: string): boolean => context.access.operations.includes(name);

export const errorMessage = (cause: unknown): string => {
  if (cause instanceof ApiError || cause instanceof Unreachable) return cause.message;
  return cause instanceof Error ? cause.message : String(cause);
};

/** Ask for a change, and say how it went. True where it was done. */
export async function runAction<Name extends ApiOperation>(
  context: PageContext,
  name: Name,
  input: Parameters<typeof ask<Name>>[1],
  done: (answer: Answer<Name>) => string,
): Promise<boolean> {
  try {
    context.notify(done(await ask(name, input)));
    return true;
  } catch (cause) {
    context.notify(errorMessage(cause), true);
    return false;
  }
}
