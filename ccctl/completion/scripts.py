"""The completion scripts: small constants that ask ccctl which words may follow the line so far.

They handle the differences of shells. Bash cuts words at ``:`` and ``=``, which ccctl's words contain, and
expects only the part after these. Bash and zsh append a space unless the script says that a word continues.
If ccctl answers nothing, the shell completes file names; if it answers a single TAB, the shell completes
nothing.
"""

from __future__ import annotations

__all__ = ["SHELLS", "WORDS_VARIABLE"]

WORDS_VARIABLE = "_CCCTL_WORDS"

# Bash parses the inserted word again, so special characters in names of files are quoted.
_BASH = r"""_ccctl_completion() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:space:]]} answer
    # Bash has split the word at : and =, and expects only the part after the last of these.
    local before= open=
    [[ $COMP_WORDBREAKS == *:* && $word == *[:=]* ]] && before=${word%"${word##*[:=]}"}
    COMPREPLY=()
    for answer in $(_CCCTL_WORDS=$line _CCCTL_COMPLETE=complete_bash "${1/#\~\//$HOME/}" 2>/dev/null); do
        answer=${answer%%$'\t'*}
        if [[ -z $answer ]]; then
            compopt +o default 2>/dev/null
            continue
        fi
        open=
        [[ $answer == *[:=@,/] ]] && open=1
        answer=${answer#"$before"}
        if [[ $word != [\"\']* && $answer == *[[:space:]\'\"\\\$\&\|\;\<\>\(\)\*\?\`]* ]]; then
            printf -v answer %q "$answer"
        fi
        COMPREPLY+=("$answer")
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && -n $open ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _ccctl_completion ccctl
"""

# If the file is on zsh's function path, zsh runs the whole file at the first TAB, so that run must already
# offer completions.
_ZSH = r"""#compdef ccctl

_ccctl_completion() {
  local line value typed="${words[1,CURRENT]}" program=${${(Q)words[1]}/#\~\//$HOME/}
  local -a whole open
  (( $+commands[$program] )) || [[ -x $program ]] || program=ccctl
  for line in "${(@f)$(_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_zsh $program 2>/dev/null)}"; do
    [[ $line == $'\t' ]] && return 1
    value=${${${line%%$'\t'*}//\\/\\\\}//:/\\:}
    [[ $line == *$'\t'* ]] && value+=:${line#*$'\t'}
    if [[ ${line%%$'\t'*} == *[:=@,/] ]]; then
      open+=("$value")
    elif [[ -n $line ]]; then
      whole+=("$value")
    fi
  done
  if (( ! ${#whole} && ! ${#open} )); then
    [[ $PREFIX == -*=* ]] && compset -P '*='
    _files
    return
  fi
  (( ${#whole} )) && _describe -V ccctl whole
  (( ${#open} )) && _describe -V ccctl open -S ''
  return 0
}

# An autoloaded file is the body of a function: loaded with the first TAB, called with each later one.
if [[ $zsh_eval_context[-1] == (loadautofunc|shfunc) ]]; then
  _ccctl_completion "$@"
else
  # In a .zshrc that has not prepared completion.
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _ccctl_completion ccctl
fi
"""

_FISH = r"""function __ccctl_ask
    set -l typed (commandline -cp | string collect)
    set -l program (commandline -opc)[1]
    string match -q '*/ccctl' -- "$program"; or set program ccctl
    set program (string replace -r '^~/' "$HOME/" -- "$program")
    set -g __ccctl_answers (_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_fish $program 2>/dev/null)
    test -n "$__ccctl_answers"
end

complete --command ccctl --no-files --keep-order --condition __ccctl_ask \
    --arguments "(string match --invert \t -- \$__ccctl_answers)"
"""

SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
