package tracker

import "syscall"

var errNoSpace error = syscall.ENOSPC
