// Opens the store in the directory given, says so, and keeps it until it is killed.
import { openSqliteStore } from "../../../dist/store/sqlite/index.js";

const store = openSqliteStore({ dir: process.argv[2] });
await store.open(Date.now());
process.stdout.write("open\n");
process.stdin.resume();
process.stdin.on("end", () => process.exit());
