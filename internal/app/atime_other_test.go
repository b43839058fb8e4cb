//go:build !linux

package app

import (
	"testing"
	"time"
)

func accessTime(*testing.T, string) (time.Time, bool) { return time.Time{}, false }
