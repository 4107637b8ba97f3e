import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";

/** laboro on SQLite and, where it is installed, on PostgreSQL. `measure` gets the options of `serve`. */
export async function inEachStore(name, measure, progress) {
  const list = [{ about: "SQLite", who: "laboro", measure: () => measure([]) }];
  if (postgresBinaries() === undefined) {
    progress("no PostgreSQL");
    return { list, stop: async () => {} };
  }
  const server = await startPostgres();
  let databases = 0;
  const inGroup = async () => measure(["--store", await server.database(`${name}_${++databases}`)]);
  list.push({ about: "PostgreSQL", who: "laboro", measure: inGroup });
  return { list, stop: () => server.stop() };
}
