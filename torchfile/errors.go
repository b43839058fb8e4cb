package torchfile

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is. Every error of this package that concerns a file's content is an
// [*Error] that wraps exactly one of them.
var (
	// ErrEmpty: the file has no bytes.
	ErrEmpty = errors.New("file is empty")
	// ErrIncomplete: the file ends before what it announces: it is still being written, or was cut.
	// What there is can be read with [Options].Salvage.
	ErrIncomplete = errors.New("file is incomplete")
	// ErrNotTorch: the content is neither a torch container nor a pickle.
	ErrNotTorch = errors.New("not a torch or pickle file")
	// ErrCorrupt: the content contradicts its format.
	ErrCorrupt = errors.New("file is corrupt")
	// ErrUnsupported: a container or construct that this package knows and does not read.
	ErrUnsupported = errors.New("not supported")
	// ErrLimit: a bound of [Limits] was reached.
	ErrLimit = errors.New("limit reached")
	// ErrChanged: the mapped file became shorter while it was read.
	ErrChanged = errors.New("file changed while it was read")
	// ErrOrder: the pickle modifies a value after it was complete, so it cannot be streamed.
	// [File.Load] reads it.
	ErrOrder = errors.New("value modified after it was complete")
	// ErrInternal: a defect of this package; the file did not get to harm the caller.
	ErrInternal = errors.New("internal defect of the reader")
)

// Error says what was wrong with a file, where, and (by Is) of which sort it is.
type Error struct {
	File   string // path, or "" for data in memory
	Record string // zip record, or "" for a file without records
	Offset int64  // byte offset in the record (in the file when Record is ""); -1 when it has no place
	What   string // what happened and, where there is something to do, what to do
	Sort   error  // one of the sentinels
	Err    error  // cause, may be nil
}

func (e *Error) Error() string {
	s := e.What
	if e.Record != "" {
		s = e.Record + ": " + s
	}
	if e.File != "" {
		s = e.File + ": " + s
	}
	if e.Offset >= 0 {
		s = fmt.Sprintf("%s (at byte %d)", s, e.Offset)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap yields the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Sort, e.Err}
	}
	return []error{e.Sort}
}

func (f *File) errorf(sort error, format string, args ...any) *Error {
	return &Error{File: f.name, Offset: -1, What: fmt.Sprintf(format, args...), Sort: sort}
}
