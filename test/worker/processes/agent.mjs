// An agent to be killed: runs one command per slot and prints what the test needs to know. Arguments: the built module, the
// number of slots, and a line for sh.
const [modulePath, count, line] = process.argv.slice(2);
const { openSlots } = await import(modulePath);
const { slots, guardian, close } = openSlots({ count: Number(count) });

const ends = slots.map(
  (slot) =>
    new Promise((resolve) => {
      let stdout = "";
      slot.run(
        { argv: ["sh", "-c", line] },
        {
          output: (_stream, bytes) => {
            stdout += bytes;
            if (stdout.endsWith("\n")) console.log(JSON.stringify({ stdout, shell: slot.pid, guardian: guardian.pid }));
          },
          ended: resolve,
        },
      );
    }),
);
// A guardian that has a process id was told all before this runs.
let { pid } = guardian;
const watching = setInterval(() => {
  if (guardian.pid === undefined || guardian.pid === pid) return;
  pid = guardian.pid;
  console.log(JSON.stringify({ guardian: pid }));
}, 5);
for (const end of await Promise.all(ends)) console.log(JSON.stringify({ end }));
clearInterval(watching);
await close();
