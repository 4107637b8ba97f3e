/** `seq N | TOOL COMMAND`, its output collected here: the seconds it took. */
import { start } from "../lib/children.mjs";

export async function pipeline({ argv, count, bytes }, line) {
  const command = argv.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word}'`)).join(" ");
  const begin = performance.now();
  const tool = start("sh", ["-c", `seq ${count} | ${line(command)}`]);
  let seen = 0;
  tool.child.stdout.on("data", (piece) => {
    seen += piece.length;
  });
  const how = await tool.ended;
  if (how !== 0 || seen !== bytes * count) throw new Error(`ended with ${how}, ${seen} bytes: ${tool.said()}`);
  return (performance.now() - begin) / 1_000;
}
