/** The web application. It gets a connected client, so that a test can give it one of its own. */
import fastify from "fastify";
import { album, pack, shrink } from "./tasks.js";

export function createApp(client) {
  const app = fastify();
  app.addContentTypeParser("application/octet-stream", { parseAs: "buffer" }, async (_request, body) => body);

  // Answers when the job is on disk. The picture is made later, also if this process ends now.
  app.post("/pictures", async ({ body, query }, reply) => {
    const job = await client.add(shrink, pack(body, Number(query.width), Number(query.factor ?? 2)), { retries: 3 });
    return reply.code(202).send({ job: job.id });
  });

  // Waits a little for a picture that is not ready yet.
  app.get("/pictures/:job", async ({ params }, reply) => {
    try {
      const picture = await client.job(Number(params.job), shrink).result({ timeoutMs: 5_000 });
      return reply.type("application/octet-stream").send(picture);
    } catch (error) {
      const status = { LABORO_DEADLINE: 504, LABORO_NO_SUCH_JOB: 404, LABORO_TASK_FAILED: 422 };
      return reply.code(status[error.code] ?? 500).send({ code: error.code, error: error.message });
    }
  });

  // One job with many tasks, and one that comes after it.
  app.post("/albums", async ({ body: { title, pictures } }, reply) => {
    const inputs = pictures.map(({ pixels, width }) => pack(Buffer.from(pixels, "base64"), width, 2));
    const parts = await client.addMany(shrink, inputs, { maxRunning: 8 });
    const job = await client.add(album, { title }, { after: { job: parts, any: true } });
    return reply.code(202).send({ job: job.id });
  });

  app.get("/albums/:job", ({ params }) => client.job(Number(params.job), album).result({ timeoutMs: 10_000 }));
  return app;
}
