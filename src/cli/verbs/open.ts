/** `laboro open`: the dashboard. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, openBroker } from "../lib/broker-connection.js";
import { printLines, printNotice } from "../lib/print.js";

export function open(): Command {
  const command = new Command("open")
    .description(
      "Print a link to the dashboard, which works once, and open it in a browser if there is one. " +
        "If no broker runs and laboro run has left data in this directory, show that data until Ctrl-C.",
    )
    .option("--print", "print the link only")
    .addHelpText("after", "\nExamples:\n  laboro open\n  laboro open --print")
    .action(run);
  return addBrokerOptions(command);
}

async function run(options: BrokerChoice & { readonly print?: boolean }): Promise<void> {
  const { client, place, isTemporary, close } = await openBroker(options);
  try {
    const { url } = await client.ask("loginLink", {});
    printLines(url);
    startBrowser(url, options);
    if (!isTemporary) return;
    printNotice(`the dashboard shows ${place} until Ctrl-C`);
    await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
  } finally {
    await close();
  }
}

function startBrowser(url: string, options: { readonly print?: boolean }): void {
  const attended = process.stdout.isTTY === true && options.print !== true;
  const browser = attended ? findBrowser(process.env) : undefined;
  if (browser === undefined) return;
  const child = spawn(browser, [url], { detached: true, stdio: "ignore" });
  child.on("error", (error) => printNotice(`cannot start ${browser}: ${error.message}; open the link yourself`));
  child.unref();
}

/** $BROWSER, which may be a list as in sensible-browser(1), or xdg-open if there is a display. */
function findBrowser(env: NodeJS.ProcessEnv): string | undefined {
  const named = (env.BROWSER ?? "").split(":").find((name) => name !== "" && isExecutable(name, env));
  if (named !== undefined) return named;
  const display = env.DISPLAY ?? env.WAYLAND_DISPLAY ?? "";
  const opener = process.platform === "darwin" ? "open" : "xdg-open";
  return (display !== "" || process.platform === "darwin") && isExecutable(opener, env) ? opener : undefined;
}

function isExecutable(program: string, env: NodeJS.ProcessEnv): boolean {
  const places = program.includes("/") ? [program] : (env.PATH ?? "").split(delimiter).map((dir) => join(dir, program));
  return places.some((place) => {
    try {
      accessSync(place, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
