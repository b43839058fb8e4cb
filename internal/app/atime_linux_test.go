package app

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// accessTime is when a file was last read, where that is known.
func accessTime(t *testing.T, path string) (time.Time, bool) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(st.Atim.Unix()), true
}
