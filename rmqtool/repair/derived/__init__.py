"""Builds consume queues and index from the log into a directory of their own.

The entrance is `build.build`: a `result.BuildRequest` goes in, and a `result.BuildResult` comes out, which has the
steps and notes for a plan; `result` also plans the checkpoint and the end of `abort`. `log_window` cuts a store to the
part that a bounded repair looks at.
"""
