/** beanstalkd with a log that is synced at every write. */
import { removeFolder, start, temporaryFolder, which } from "../lib/children.mjs";
import { freePort } from "./ports.mjs";

export const beanstalkd = {
  available: () => which("beanstalkd") !== undefined,
  async start() {
    const dir = temporaryFolder("beanstalkd");
    const port = await freePort();
    const server = start(which("beanstalkd"), ["-l", "127.0.0.1", "-p", String(port), "-b", dir, "-f", "0"]);
    return {
      port,
      stop: async () => {
        await server.stop();
        removeFolder(dir);
      },
    };
  },
};
