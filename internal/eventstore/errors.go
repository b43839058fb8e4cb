package eventstore

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// ErrReadOnly: rows are not accepted, because the disk is nearly full or the store was opened to be read.
	ErrReadOnly = errors.New("the event store is read-only")
	// ErrFull: rows come faster than they can be stored, for longer than the caller would wait.
	ErrFull = errors.New("the spool of events is full")
	// ErrDown: the store cannot be reached; what was accepted waits in the spool.
	ErrDown = errors.New("the event store is down")
	// ErrNoDelete: the server at the URL does not let anybody remove rows.
	ErrNoDelete = errors.New("the event store does not remove single rows")
	// ErrClosed: the store was closed, or never ran.
	ErrClosed = errors.New("the event store is closed")
)

// Reasons for which a row is refused.
const (
	TooOld    = "too_old"       // older than the retention
	TooNew    = "too_new"       // too far in the future
	TooLarge  = "row_too_large" // beyond what the store takes for one row
	TooMany   = "too_many_fields"
	Unnamed   = "no_kind" // a row without a kind
	expired   = "expired_in_spool"
	refused   = "refused_by_store"
	lostSpool = "spool_damaged"
	lostSize  = "removed_by_size"
	cutFields = "field_renamed"
)

// RejectedError says that some rows of an Append were refused; the others are stored.
type RejectedError struct {
	Rows    int            // how many
	Reason  string         // of the most of them
	Reasons map[string]int // of all
	At      []int          // which rows of the Append, in their order
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%d rows refused: %s%s", e.Rows, e.Reason, map[string]string{
		TooOld:   ", their time is before the retention of the event store",
		TooNew:   ", their time is in the future: is a clock wrong?",
		TooLarge: ", a row may have 1.9 MB at most",
		TooMany:  ", a row may have 1900 fields at most",
	}[e.Reason])
}

// Drop is a number of rows that were not kept, or not as they came.
type Drop struct {
	Source, Reason string
	Count          int64
}
