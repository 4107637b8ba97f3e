/** How workers have behaved at other brokers: read from the store for those that are not here, whose results nobody counts here. */
import { type Figures, STANDING_AREA } from "../../dispatch/index.js";
import type { Core } from "../core.js";

export async function applyStandings(core: Core): Promise<void> {
  const { state, store } = core;
  if (!state.settings.standing) return;
  const kept = await store.keyValues(STANDING_AREA);
  const here = new Set<string>();
  for (const { connected, profile } of state.workers.values()) if (connected) here.add(profile.name);
  for (const { key, value } of kept) if (!here.has(key)) state.standings.set(key, JSON.parse(value) as Figures);
  const known = new Set(kept.map(({ key }) => key));
  for (const name of state.standings.keys()) if (!known.has(name) && !here.has(name)) state.standings.delete(name);
}
