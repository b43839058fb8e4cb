package fpm

import (
	"fmt"
	"strconv"
	"strings"
)

// IDForm is how a worker's id is written.
type IDForm int

// Forms of a worker's id. Dynamo writes the same number in decimal in forward-pass messages and in the
// planner's metrics, and in hexadecimal in the label worker_id of its other metrics.
const (
	AnyID     IDForm = iota // by its digits; only digits may be either, which is an error
	DecimalID               // worker_id of a forward-pass message
	HexID                   // label worker_id of a Dynamo metric, with or without 0x
)

// ParseWorkerID returns the number that a worker's id stands for, exactly: ids exceed 2^53. An id that is
// not a number (a name given by hand) is an error, as is one of digits only in [AnyID], since it could be
// either form; joining by it would be a guess.
func ParseWorkerID(id string, form IDForm) (uint64, error) {
	digits, prefixed := strings.CutPrefix(strings.ToLower(id), "0x")
	base := 16
	switch form {
	case DecimalID:
		digits, base = id, 10
	case AnyID:
		if !prefixed && strings.Trim(digits, "0123456789") == "" {
			return 0, fmt.Errorf("worker id %q may be decimal or hexadecimal: say which by where it comes from", id)
		}
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil || strings.HasPrefix(digits, "+") {
		return 0, fmt.Errorf("worker id %q is not a number of 64 bits in base %d", id, base)
	}
	return n, nil
}

// HexWorkerID returns the number as Dynamo's metrics write it.
func HexWorkerID(n uint64) string { return strconv.FormatUint(n, 16) }

// SameWorker says whether the worker of a forward-pass message and the worker_id label of a Dynamo metric
// are one.
func SameWorker(message, label string) bool {
	a, err := ParseWorkerID(message, DecimalID)
	if err != nil {
		return false
	}
	b, err := ParseWorkerID(label, HexID)
	return err == nil && a == b
}
