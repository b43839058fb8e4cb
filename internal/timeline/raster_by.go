package timeline

import (
	"fmt"
	"slices"
	"strings"
)

// By is what the pixels of a raster tell apart; see "Raster" in FORMAT.md.
type By uint8

// Ways to colour. A kind is the number of a class, name, attempt or status, at most noLeaf - 1.
const (
	ByClass   By = iota // the class of what fills the instant
	ByPhase             // its class, or for class other its name: the page's colours by phase
	ByName              // its span name
	ByAttempt           // its attempt
	ByStatus            // the status of its row
)

var byNames = [...]string{"class", "phase", "name", "attempt", "status"}

// firstName is the kind of the first name ByPhase: classes have the numbers below.
const firstName = 32

// ParseBy reads what to colour by; "" is ByClass. Errors are [*QueryError].
func ParseBy(s string) (By, error) {
	if s == "" {
		return ByClass, nil
	}
	if i := slices.Index(byNames[:], s); i >= 0 {
		return By(i), nil
	}
	return 0, &QueryError{At: -1, What: fmt.Sprintf("a raster cannot be coloured by %q: it is one of %s", clean(s, 64), strings.Join(byNames[:], ", "))}
}

// kindOf fits a number into a pixel: the last kind is shared by all that do not fit.
func kindOf(n int) uint8 { return uint8(min(n, noLeaf-1)) }
