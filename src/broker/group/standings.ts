/** The standings of workers at other brokers, read from the store. Those of workers at this broker are counted here. */
import { STANDING_BUCKET, type StandingRecord } from "../../dispatch/index.js";
import type { Core } from "../core.js";

export async function applyStandings(core: Core): Promise<void> {
  const { state, store } = core;
  if (!state.settings.standing) return;
  const stored = await store.keyValues(STANDING_BUCKET);
  const here = new Set<string>();
  for (const { connected, profile } of state.workers.values()) if (connected) here.add(profile.name);
  for (const { key, value } of stored)
    if (!here.has(key)) state.standings.set(key, JSON.parse(value) as StandingRecord);
  const known = new Set(stored.map(({ key }) => key));
  for (const name of state.standings.keys()) if (!known.has(name) && !here.has(name)) state.standings.delete(name);
}
