"""Formats values for the terminal: tables, plots, JSON and plain lines.

In: the views of `rota.wire`. Out: text on stdout, errors and notices on stderr. Nothing else writes
to the terminal, except `cli.terminal` (raw output of exec sessions) and `log_setup` (the daemon's
log). Read `console` and `table` first; the other modules format one subject each, such as jobs,
nodes or profiles.
"""
