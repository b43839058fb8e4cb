package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// release is a point in an engine's history: ten times the date of a release on main as yyyymmdd,
// plus its post number, so that versions and bare merge dates compare.
type release int

// released gives the approximate dates of SGLang's releases (reference: versions and dates).
func released() map[string]release {
	return map[string]release{
		"0.5.4": 20251026, "0.5.5": 20251107, "0.5.6": 20251203, "0.5.7": 20260101, "0.5.8": 20260124,
		"0.5.9": 20260215, "0.5.10": 20260406, "0.5.11": 20260505, "0.5.12": 20260525, "0.5.13": 20260613,
		"0.5.14": 20260704, "0.5.15": 20260713, "0.5.16": 20260724, "0.5.17": 20260812, "0.5.18": 20260821,
	}
}

// oldest is the oldest release that is modelled; what came before it is in every one.
const oldest = release(20251026) * 10

// parseRelease reads "0.5.15", "0.5.15.post1", "0.5.10rc0" or "2026-08-05". Releases before the
// oldest modelled one count as earlier than all.
func parseRelease(s string) (release, error) {
	if len(s) == 10 && s[4] == '-' {
		n, err := strconv.Atoi(strings.ReplaceAll(s, "-", ""))
		if err != nil {
			return 0, fmt.Errorf("sim: date %q: %w", s, err)
		}
		return release(n) * 10, nil
	}
	base, post, _ := strings.Cut(s, ".post")
	base, rc, isRC := strings.Cut(base, "rc")
	dates := released()
	d, ok := dates[base]
	if !ok {
		major, minor, patch := 0, 0, 0
		if n, _ := fmt.Sscanf(base, "%d.%d.%d", &major, &minor, &patch); n == 3 && major == 0 && (minor < 5 || minor == 5 && patch < 4) {
			return 0, nil
		}
		return 0, fmt.Errorf("sim: SGLang version %q is not modelled: 0.5.4 to 0.5.18", s)
	}
	r := d * 10
	if isRC {
		n, _ := strconv.Atoi(rc)
		return r - 9 + release(min(n, 8)), nil
	}
	n, _ := strconv.Atoi(post)
	return r + release(min(n, 9)), nil
}

// has tells whether a family of the given lifetime is in r. An empty bound is open; bounds are
// written as in the metric tables and are known to parse (a test reads them all).
func (r release) has(since, till string) bool {
	if since != "" {
		if s, err := parseRelease(since); err != nil || r < s {
			return false
		}
	}
	if till != "" {
		if t, err := parseRelease(till); err != nil || r >= t {
			return false
		}
	}
	return true
}
