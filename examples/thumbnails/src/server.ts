/** LABORO_BROKER is `@FILE`: the `client.url` that `laboro serve` writes. */
import { connect } from "laboro";
import { createApp } from "./app.js";

const client = await connect(process.env.LABORO_BROKER ?? "");
const app = createApp(client);
await app.listen({ port: Number(process.env.PORT ?? 3000) });

for (const signal of ["SIGTERM", "SIGINT"])
  process.once(signal, async () => {
    await app.close(); // requests that are being answered come to their end
    client.close();
  });
