"""`rota completion`: prints the script that lets a shell complete rota's commands.

A script runs `rota` with the words of the command line as arguments and `_ROTA_COMPLETE` set to the
shell's name. `rota.cli.complete` prints the suggestions.
"""

from __future__ import annotations

from rota.cli.command import CommandArgument, command
from rota.cli.output.console import print_out
from rota.errors import UserError, did_you_mean, shown

BASH = r"""_rota_completion() {
    local IFS=$'\n'
    COMPREPLY=($(_ROTA_COMPLETE=bash rota "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _rota_completion rota"""

ZSH = r"""#compdef rota
_rota_completion() {
    local -a found
    found=("${(@f)$(_ROTA_COMPLETE=zsh rota "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        _describe -V rota found
    else
        _files
    fi
}
compdef _rota_completion rota"""

FISH = r"""function __rota_completion
    set -l words (commandline -opc)
    set -e words[1]
    env _ROTA_COMPLETE=fish rota $words (commandline -ct | string collect --allow-empty) 2>/dev/null
end
complete --command rota --arguments '(__rota_completion)'"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@command(
    "completion",
    CommandArgument("shell", metavar="bash|zsh|fish", text="Name of the shell."),
    epilog='Example: eval "$(rota completion bash)" in ~/.bashrc',
)
def completion(*, shell: str) -> None:
    """Print a completion script for a shell. It completes commands, flags, jobs and nodes."""
    if shell not in SCRIPTS:
        hint = did_you_mean(shell, SCRIPTS) or f"supported shells: {', '.join(SCRIPTS)}"
        raise UserError(f"no completion for '{shown(shell)}'", hint)
    print_out(SCRIPTS[shell])


COMMANDS = (completion,)
