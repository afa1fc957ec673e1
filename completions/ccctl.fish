function __ccctl_ask
    set -l typed (commandline -cp | string collect)
    set -l program (commandline -opc)[1]
    string match -q '*/ccctl' -- "$program"; or set program ccctl
    set program (string replace -r '^~/' "$HOME/" -- "$program")
    set -g __ccctl_answers (_CCCTL_WORDS=$typed _CCCTL_COMPLETE=complete_fish $program 2>/dev/null)
    test -n "$__ccctl_answers"
end

complete --command ccctl --no-files --keep-order --condition __ccctl_ask \
    --arguments "(string match --invert \t -- \$__ccctl_answers)"
