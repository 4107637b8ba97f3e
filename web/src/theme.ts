/** Light, dark, or as the system has it; and the colours of the moment, for what is drawn and cannot read a style sheet. */
const KEY = "laboro-theme";

export type Theme = "light" | "dark" | "system";

const listeners = new Set<() => void>();

export function theme(): Theme {
  const set = document.documentElement.dataset.theme;
  return set === "light" || set === "dark" ? set : "system";
}

export function setTheme(wanted: Theme): void {
  if (wanted === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  try {
    if (wanted === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, wanted);
  } catch {
    // Without storage it holds until the page is left.
  }
  notifyListeners();
}

function notifyListeners(): void {
  colours.clear();
  for (const listener of [...listeners]) listener();
}

/** Called when colours have become others. */
export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const colours = new Map<string, string>();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", notifyListeners);

/** What `var(--name)` is now. The style sheet has pairs of colours, so it has to be asked of an element. */
export function colour(name: string): string {
  const known = colours.get(name);
  if (known !== undefined) return known;
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  colours.set(name, found);
  return found;
}
