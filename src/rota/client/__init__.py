"""The client library: what a program, or the command line, asks a daemon with."""
