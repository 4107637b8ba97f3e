/** Light, dark, or the system's theme; and the current colours, for canvases, which cannot read a style sheet. */
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
    // Without storage, the choice lasts until the page is closed.
  }
  notifyListeners();
}

function notifyListeners(): void {
  colours.clear();
  for (const listener of [...listeners]) listener();
}

/** Called when the colours have changed. */
export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const colours = new Map<string, string>();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", notifyListeners);

/** The current value of `var(--name)`. Read from an element, because the style sheet has light-dark pairs. */
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
