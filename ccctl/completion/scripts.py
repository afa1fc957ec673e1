"""The completion scripts: small constants, each of which asks ccctl itself what may follow the line so far.

They do what shells differ in: bash cuts words at ``:`` and ``=``, which stand within ours, and wants none of
what stands before; bash and zsh append a space unless told that a word goes on. Where ccctl has no answer
there are files.
"""

from __future__ import annotations

__all__ = ["COMPLETE_VARIABLE", "SHELLS", "WORDS_VARIABLE"]

COMPLETE_VARIABLE = "_CCCTL_COMPLETE"
WORDS_VARIABLE = "_CCCTL_WORDS"

_BASH = r"""_ccctl_completion() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:space:]]} answer
    # What bash takes for words of their own, and has no need of.
    local before=
    [[ $COMP_WORDBREAKS == *:* && $word == *[:=]* ]] && before=${word%"${word##*[:=]}"}
    COMPREPLY=()
    for answer in $(_CCCTL_WORDS=$line _CCCTL_COMPLETE=complete_bash "$1" 2>/dev/null); do
        answer=${answer%%$'\t'*}
        COMPREPLY+=("${answer#"$before"}")
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=@,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _ccctl_completion ccctl
"""

# Found on zsh's path, the file is run as the function itself at the first TAB, and must complete then.
_ZSH = r"""#compdef ccctl

_ccctl_completion() {
  local line value typed="${words[1,CURRENT]}"
  local -a whole open
  for line in "${(@f)$(_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_zsh ccctl 2>/dev/null)}"; do
    value=${${line%%$'\t'*}//:/\\:}
    [[ $line == *$'\t'* ]] && value+=:${line#*$'\t'}
    if [[ ${line%%$'\t'*} == *[:=@,] ]]; then
      open+=("$value")
    elif [[ -n $line ]]; then
      whole+=("$value")
    fi
  done
  if (( ! ${#whole} && ! ${#open} )); then
    _files
    return
  fi
  (( ${#whole} )) && _describe -V ccctl whole
  (( ${#open} )) && _describe -V ccctl open -S ''
  return 0
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _ccctl_completion "$@"
else
  compdef _ccctl_completion ccctl
fi
"""

_FISH = r"""function __ccctl_ask
    set -l typed (commandline -cp | string collect)
    set -g __ccctl_answers (_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_fish ccctl 2>/dev/null)
    test -n "$__ccctl_answers"
end

complete --command ccctl --no-files --condition __ccctl_ask --arguments "(printf '%s\n' \$__ccctl_answers)"
"""

SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
