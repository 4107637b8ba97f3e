/** What a worker of BullMQ runs in threads. */
export default async (job) => ({ n: job.data.n + 1 });
