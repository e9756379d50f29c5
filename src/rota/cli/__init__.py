"""The `rota` command line.

In: the words of the shell. Out: lines on the terminal and an exit code. `commands` holds one
module per subject, `output` formats everything that is printed, the modules here parse and
dispatch. A command imports what it needs when it runs, so that every command starts fast.
Read `main` first, then `app` and `command`, then one command, such as `commands.nodes`.
"""
