"""Plans that run for ever: one *epoch* after the other, each over what is new.

An epoch runs all fragments of the sharded plan, wave by wave, over a part of every live input. Every shard has its
operators' state from the epoch before, in memory or from the checkpoint, and leaves the next version. An epoch counts
when its commit is written, for all shards and inputs at once; whatever happens before that is forgotten and done
again.

``orders``   what a shard is to do in an epoch, and what it reports
``leaves``   how rows and time enter a shard: live, moved from other shards, stored
``shard``    one shard: its operators, kept from epoch to epoch
``host``     the shards that one process holds, with their states
``postbox``  rows on their way from one wave to the next, in memory or in files
``inputs``   what is new: files in a folder, partitions, pushed rows
``refreshed``  tables that are read again
``log``      the checkpoint folder: what each epoch reads, what was committed
``outputs``  the rows of an epoch on their way to the sink
``sinks``    functions, folders, tables, the console
``times``    how far inputs have come
``runner``   where shards work: threads, or Spark tasks
``delivery`` rows on their way to the sink
``keep``     a run over stored rows that keeps its state, and ``bootstrap`` queries that begin from it
``driver``   plans, runs and commits epochs
``handle``   what the user has in hand
"""
