/** The web application. It gets a connected client, so that a test can give it one of its own. */
import fastify, { type FastifyInstance } from "fastify";
import { type Client, type ErrorCode, LaboroError } from "laboro";
import { album, pack, shrink } from "./tasks.js";

const STATUS: Partial<Record<ErrorCode, number>> = {
  LABORO_DEADLINE: 504,
  LABORO_NO_SUCH_JOB: 404,
  LABORO_TASK_FAILED: 422,
};

interface Picture {
  Querystring: { width: string; factor?: string };
  Body: Buffer;
}

interface Pictures {
  Body: { title: string; pictures: { pixels: string; width: number }[] };
}

interface OfJob {
  Params: { job: string };
}

export function createApp(client: Client): FastifyInstance {
  const app = fastify();
  app.addContentTypeParser(
    "application/octet-stream",
    { parseAs: "buffer" },
    async (_request: unknown, body: Buffer) => body,
  );

  // Answers when the job is on disk. The picture is made later, also if this process ends now.
  app.post<Picture>("/pictures", async ({ body, query }, reply) => {
    const job = await client.add(shrink, pack(body, Number(query.width), Number(query.factor ?? 2)), { retries: 3 });
    return reply.code(202).send({ job: job.id });
  });

  // Waits a little for a picture that is not ready yet.
  app.get<OfJob>("/pictures/:job", async ({ params }, reply) => {
    try {
      const picture = await client.job(Number(params.job), shrink).result({ timeoutMs: 5_000 });
      return reply.type("application/octet-stream").send(picture);
    } catch (error) {
      if (!(error instanceof LaboroError)) throw error;
      return reply.code(STATUS[error.code] ?? 500).send({ code: error.code, error: error.message });
    }
  });

  // One job with many tasks, and one that comes after it.
  app.post<Pictures>("/albums", async ({ body: { title, pictures } }, reply) => {
    const inputs = pictures.map(({ pixels, width }) => pack(Buffer.from(pixels, "base64"), width, 2));
    const parts = await client.addMany(shrink, inputs, { maxRunning: 8 });
    const job = await client.add(album, { title }, { after: { job: parts, any: true } });
    return reply.code(202).send({ job: job.id });
  });

  app.get<OfJob>("/albums/:job", ({ params }) => client.job(Number(params.job), album).result({ timeoutMs: 10_000 }));
  return app;
}
