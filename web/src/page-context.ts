/** What every page gets: the user's permissions, navigation, and notices. */
import { type Answer, ApiError, ask, Unreachable } from "./api.js";
import type { ApiOperation } from "./api-routes.js";
import type { Route } from "./route.js";

export interface PageContext {
  readonly permissions: Answer<"permissions">;
  /** Goes to another address of the dashboard; `replace` adds no entry to the browser's history. */
  navigate(address: string, replace?: boolean): void;
  /** Shows a notice that disappears by itself. */
  notify(text: string, bad?: boolean): void;
  /** Polls at once. */
  refresh(): void;
}

export interface Page {
  readonly title: string;
  readonly element: HTMLElement;
  /** The address has changed. Returns true if this page shows the new one. */
  onNavigate?(route: Route): boolean;
  /** Called repeatedly while the page is open. */
  refresh(signal: AbortSignal): Promise<void>;
  /** Milliseconds between two polls; a second if absent. */
  readonly refreshMs?: number;
  close?(): void;
}

export type PageFactory = (route: Route, context: PageContext) => Page;

/** An older broker may not have this operation. */
export const isAllowed = (context: PageContext, name: string): boolean => context.permissions.operations.includes(name);

export const errorMessage = (cause: unknown): string => {
  if (cause instanceof ApiError || cause instanceof Unreachable) return cause.message;
  return cause instanceof Error ? cause.message : String(cause);
};

/** Calls an operation and shows a notice with its result. Returns true if it succeeded. */
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
