package fpm

import "fmt"

// Reason is why something was refused, as a word for counters. The words do not change.
type Reason string

// Reasons for which bytes are refused.
const (
	Empty     Reason = "empty"      // no bytes
	TooLarge  Reason = "too_large"  // more than [MaxPayload]
	Truncated Reason = "truncated"  // ends inside a value
	Malformed Reason = "malformed"  // not MessagePack, or not JSON
	Trailing  Reason = "trailing"   // bytes after the message
	Array     Reason = "positional" // an array where the schema has a map, and the source is not configured so
	NotAMap   Reason = "not_a_map"  // neither a map nor an array
	Versioned Reason = "version"    // a version other than [Version]
	Type      Reason = "type"       // a field of another type than the schema's
	Value     Reason = "value"      // a field that cannot be: negative, not finite, too large
)

// Error is why a message was refused.
type Error struct {
	Reason Reason
	Offset int    // byte of the input at which it was found
	Field  string // the field that was read, "" when none was
	Detail string // what is wrong, and what to do where something can be done
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("forward-pass message refused (%s) at byte %d: %s", e.Reason, e.Offset, e.Detail)
	}
	return fmt.Sprintf("forward-pass message refused (%s) at byte %d, field %s: %s", e.Reason, e.Offset, e.Field, e.Detail)
}
