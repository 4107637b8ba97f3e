/**
 * The session of this browser: a token that is sent with each request. `laboro open` prints a link with a one-time code
 * after #, which is exchanged for the token.
 *
 * The token is in sessionStorage, which is bound to scheme, host and port and ends with the tab. localStorage would
 * keep it on disk, where another program that later serves a page on this port could read it. A new tab gets the token
 * from an open tab.
 */
const KEY = "laboro-session";
const CODE = /^#login=([\w-]+)$/;
/** How long a new tab waits for the others. */
const OTHER_TABS_MS = 300;

let token: string | undefined;

const channel = new BroadcastChannel(KEY);
channel.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
  if (data === "token?" && token !== undefined) channel.postMessage({ token });
});

/** Whether the address contains the code of a login link, which may be opened in a tab that shows the dashboard. */
export const hasCode = (): boolean => CODE.test(location.hash);

/** Removes the code from the address and the history, even if it is not valid. */
function takeCode(): string | undefined {
  const code = CODE.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}

type SessionState = "open" | "none" | "bad link";

/** Finds the session: by the code in the address, in this tab, or in another one. */
export async function openSession(): Promise<SessionState> {
  const code = takeCode();
  const given = code === undefined ? undefined : await exchange(code);
  keep(given ?? sessionStorage.getItem(KEY) ?? (await fromOtherTab()));
  if (token !== undefined) return "open";
  return code === undefined ? "none" : "bad link";
}

/** The broker does not accept the token any more. */
export function endSession(): void {
  keep(undefined);
}

export const authorization = (): Readonly<Record<string, string>> =>
  token === undefined ? {} : { authorization: `Bearer ${token}` };

function keep(found: string | undefined): void {
  token = found;
  if (found === undefined) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, found);
}

async function exchange(code: string): Promise<string | undefined> {
  const headers = { authorization: `Bearer ${code}` };
  const response = await fetch("/login", { method: "POST", headers, cache: "no-store", credentials: "omit" });
  if (!response.ok) return undefined;
  return ((await response.json()) as { readonly token: string }).token;
}

function fromOtherTab(): Promise<string | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(undefined), OTHER_TABS_MS);
    channel.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      if (typeof data !== "object" || data === null || !("token" in data) || typeof data.token !== "string") return;
      clearTimeout(timer);
      resolve(data.token);
    });
    channel.postMessage("token?");
  });
}
