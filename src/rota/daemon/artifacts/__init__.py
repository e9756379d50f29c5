"""Snapshots: the folders that users ship with their jobs, stored once per user and content.

In: manifests and file contents from the API. Out: an unpacked folder for a worker on this machine,
or a tar stream for a worker elsewhere. Read `snapshots` first, then `user_store`. Everything blocks
on the disk; after a crash each entry is complete or absent.
"""
