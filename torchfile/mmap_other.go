//go:build !unix

package torchfile

import (
	"errors"
	"os"
)

var errNoMap = errors.New("this system's memory maps are not used")

func mapFile(*os.File, int64) ([]byte, error) { return nil, errNoMap }
func unmapFile([]byte) error                  { return nil }
func adviseSequential([]byte)                 {}
func dropPages([]byte, int, int)              {}
func populate([]byte, int, int)               {}
