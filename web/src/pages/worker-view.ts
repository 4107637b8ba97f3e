/** A worker as pages show it. */
import type { Answer } from "../api.js";
import { h } from "../dom.js";

export type Worker = Answer<"workerPage">["workers"][number];

export function stateOf({ connected, draining, paused, standing }: Worker): string {
  if (standing !== "good") return standing;
  if (!connected) return "disconnected";
  return draining ? "draining" : paused === undefined ? "connected" : "paused";
}

export const usedSlots = ({ total, free }: Worker): number => (total.slots ?? 0) - (free.slots ?? 0);

/** `+` and `-` as small bars, with a text for screen readers. */
export function recentBars(recent: string): HTMLElement {
  const failed = recent.split("-").length - 1;
  const words = recent === "" ? "no results yet" : `${failed} of the last ${recent.length} failed`;
  const bars = h("span", { class: "recent", role: "img", "aria-label": words, title: words });
  for (const one of recent) bars.append(h("i", { class: one === "+" ? "good" : "bad" }));
  return bars;
}
