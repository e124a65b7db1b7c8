"""State on disk: what a running query holds, written so that little is written twice.

``tree``      a state as JSON and named arrays, and back; no code is ever read
``columns``   Series as arrays, and back
``chunks``    rows that never change, written once and referred to
``manifest``  what a checkpoint consists of, written last and at once
``files``     sequential files with checksums, written
``direct``    a file written past the page cache
``stored_files``  the files of a checkpoint, read and checked
``journal``   a base and logs of changed blocks, one version after the other
``merge``     base and logs folded into a new base, from the files
``folder``    a checkpoint read back
"""
