import { spawn } from "node:child_process";

process.once("message", async ({ argv, count, atOnce, bytes }) => {
  const [command, ...args] = argv;
  let left = count;
  let seen = 0;
  const one = () =>
    new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: ["ignore", bytes > 0 ? "pipe" : "ignore", "ignore"] });
      child.stdout?.on("data", (piece) => {
        seen += piece.length;
      });
      child.once("error", reject);
      child.once("close", (code) => (code === 0 ? resolve() : reject(new Error(`ended with ${code}`))));
    });
  const slot = async () => {
    while (left-- > 0) await one();
  };
  const begin = performance.now();
  await Promise.all(Array.from({ length: atOnce }, slot));
  const seconds = (performance.now() - begin) / 1_000;
  process.send(seen === bytes * count ? { seconds } : { error: `${seen} bytes of output` });
});
process.on("disconnect", () => process.exit(0));
