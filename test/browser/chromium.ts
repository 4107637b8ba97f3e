/**
 * A browser: one that is installed, or the one in the package of the tests, which unpacks itself into a temporary folder that goes with it.
 * It is started with what a container without its own sandbox and with little shared memory needs, and nothing else.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { type Browser, chromium } from "playwright-core";

export interface Opened {
  readonly browser: Browser;
  close(): Promise<void>;
}

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--font-render-hinting=none"];

export async function openChromium(): Promise<Opened> {
  const installed = process.env.LABORO_CHROMIUM ?? foundInPath();
  const dir = mkdtempSync(join(tmpdir(), "laboro-browser-"));
  const remove = (): void => rmSync(dir, { recursive: true, force: true });
  try {
    const executablePath = installed ?? (await unpacked(dir));
    const browser = await chromium.launch({
      executablePath,
      args: ARGS,
      // What it writes for itself goes with it, too.
      env: { ...process.env, TMPDIR: dir, HOME: dir, ...(installed === undefined ? withFonts(dir) : {}) },
    });
    return {
      browser,
      close: async () => {
        await browser.close();
        remove();
      },
    };
  } catch (cause) {
    remove();
    throw cause;
  }
}

/** The package's own settings name other folders than the one it unpacks into; a control without any font ends the browser. */
function withFonts(dir: string): { readonly FONTCONFIG_FILE: string } {
  const path = join(dir, "fonts.conf");
  const alias = (family: string, prefer: string): string =>
    `<alias><family>${family}</family><prefer><family>${prefer}</family></prefer></alias>`;
  writeFileSync(
    path,
    `<?xml version="1.0"?><fontconfig><dir>${join(dir, "fonts")}</dir><dir>/usr/share/fonts</dir>
${alias("monospace", "DejaVu Sans Mono")}
<cachedir>${join(dir, "fonts-cache")}</cachedir>
${["sans-serif", "system-ui"].map((name) => alias(name, "Open Sans")).join("")}</fontconfig>
`,
  );
  return { FONTCONFIG_FILE: path };
}

function foundInPath(): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.flatMap((folder) => NAMES.map((name) => join(folder, name))).find((path) => existsSync(path));
}

/** The package looks at TMPDIR when it unpacks, so that is where the folder is for as long. */
async function unpacked(dir: string): Promise<string> {
  const { default: packed } = await import("@sparticuz/chromium");
  const before = process.env.TMPDIR;
  process.env.TMPDIR = dir;
  try {
    packed.setGraphicsMode = false;
    return await packed.executablePath();
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
}
