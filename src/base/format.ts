/** Amounts as text. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** 340ms, 4.2s, 3m10s, 2h05m, 3d04h */
export function shortDuration(ms: number): string {
  // Clocks differ, so a start can be slightly in the future.
  const time = Math.max(0, ms);
  if (time < SECOND) return `${Math.round(time)}ms`;
  if (time < 10 * SECOND) return `${(Math.floor(time / 100) / 10).toFixed(1)}s`;
  if (time < MINUTE) return `${Math.floor(time / SECOND)}s`;
  if (time < HOUR) return pair(time, MINUTE, "m", SECOND, "s");
  if (time < DAY) return pair(time, HOUR, "h", MINUTE, "m");
  return pair(time, DAY, "d", HOUR, "h");
}

/** So many tasks have ended in this time: "12/s", and how long the others take. */
export function speedTexts(ended: number, left: number, ms: number): readonly [rate: string, left: string] {
  const perMs = ended / Math.max(1, ms);
  return [`${(perMs * SECOND).toFixed(perMs * SECOND < 10 ? 1 : 0)}/s`, shortDuration(left / perMs)];
}

function pair(time: number, large: number, name: string, small: number, rest: string): string {
  const whole = Math.floor(time / large);
  const left = Math.floor((time - whole * large) / small);
  return left === 0 ? `${whole}${name}` : `${whole}${name}${String(left).padStart(2, "0")}${rest}`;
}

export const ago = (then: number, now = Date.now()): string => `${shortDuration(now - then)} ago`;

/** 900 B, 1.4 MiB */
export function formatSize(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let amount = bytes;
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit++;
  }
  return `${unit === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

/** 1_000_000, a form that selectors accept. */
export const formatCount = (count: number): string => String(count).replace(/\B(?=(\d{3})+$)/g, "_");

export const pluralize = (count: number, one: string, many = `${one}s`): string =>
  `${formatCount(count)} ${count === 1 ? one : many}`;

/** A word as it could be typed in a shell. Placeholders stay without quotes. */
export const shellWord = (word: string): string =>
  /^(?:[\w@%+=:,./-]|\{[#%]?\d*[./]{0,2}\})+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

/** Whether the whole text matches: `*` is any text, `?` any character. Takes linear time for one `*`. */
export function matchesGlob(text: string, glob: string): boolean {
  let [at, place] = [0, 0];
  let [star, from] = [-1, 0];
  while (at < text.length) {
    if (place < glob.length && (glob[place] === text[at] || glob[place] === "?") && glob[place] !== "*") {
      at++;
      place++;
    } else if (glob[place] === "*") {
      star = place++;
      from = at;
    } else if (star >= 0) {
      // The last * takes one character more.
      place = star + 1;
      at = ++from;
    } else return false;
  }
  while (glob[place] === "*") place++;
  return place === glob.length;
}
