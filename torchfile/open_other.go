//go:build !linux

package torchfile

import "os"

func open(path string) (*os.File, error) { return os.Open(path) }
