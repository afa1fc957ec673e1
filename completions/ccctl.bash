_ccctl_completion() {
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
