/** A state as one word with a colour. */
import { h, set, setText } from "../dom.js";

type Tone = "good" | "bad" | "busy" | "warn" | "idle" | "off";

const TONES: Readonly<Record<string, Tone>> = {
  succeeded: "good",
  good: "good",
  connected: "good",
  open: "good",
  active: "good",
  ended: "off",
  standby: "idle",
  failed: "bad",
  banned: "bad",
  running: "busy",
  prefetched: "busy",
  held: "warn",
  suspended: "warn",
  blocked: "warn",
  draining: "warn",
  paused: "warn",
  disconnected: "warn",
  waiting: "idle",
  delayed: "idle",
  idle: "idle",
  cancelled: "off",
};

export function badge(state: string): HTMLSpanElement {
  const element = h("span", { class: "badge" });
  setBadge(element, state);
  return element;
}

export function setBadge(element: Element, state: string): void {
  set(element, "class", `badge tone-${TONES[state] ?? "idle"}`);
  setText(element, state);
}
