function __ccctl_ask
    set -l typed (commandline -cp | string collect)
    set -g __ccctl_answers (_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_fish ccctl 2>/dev/null)
    test -n "$__ccctl_answers"
end

complete --command ccctl --no-files --condition __ccctl_ask --arguments "(printf '%s\n' \$__ccctl_answers)"
