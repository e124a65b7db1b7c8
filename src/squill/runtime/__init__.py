"""Where shards run and how batches travel between them: `local` on threads, `spark` in Spark tasks."""
