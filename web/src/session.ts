/**
 * The session of this browser at the broker: a token, sent with each request. `laboro open` prints a link with a code behind #, which is
 * exchanged for it once.
 *
 * The token is in sessionStorage, which belongs to scheme, host and port, and is gone with the tab. localStorage would leave it on the disk
 * for whoever serves a page on this port later. A new tab gets the token from a tab that is open.
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

/** With the code of a login link in it, for a link that is opened in this tab while the dashboard is there. */
export const hasCode = (): boolean => CODE.test(location.hash);

/** Takes the code out of the address and the history, whatever becomes of it. */
function takeCode(): string | undefined {
  const code = CODE.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}

export type SessionState = "open" | "none" | "bad link";

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
