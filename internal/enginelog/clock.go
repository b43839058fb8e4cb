package enginelog

import (
	"math"
	"strconv"
	"time"
)

// clock turns the times of lines into moments.
type clock struct {
	zone    *time.Location
	learned bool
	offset  time.Duration // local time minus UTC
	odd     time.Duration // another offset, seen lately
	oddSeen int
	last    int64 // the last time that was read, of any stream

	reference int64 // about when the source was written
}

const (
	quarter = 15 * time.Minute
	west    = -12 * time.Hour
	east    = 14 * time.Hour
	// oddLines is how many lines in a row must agree before another offset is believed: a clock that was
	// put forward for the summer, but not a line that came hours late.
	oddLines = 3
)

// learn takes note that the local time local (ns, as if it were UTC) was written at the moment at.
func (c *clock) learn(local, at int64) {
	if c.zone != nil || at == 0 {
		return
	}
	off := time.Duration(math.Round(float64(local-at)/float64(quarter))) * quarter
	if off < west || off > east {
		return
	}
	switch {
	case !c.learned:
		c.learned, c.offset = true, off
	case off == c.offset:
		c.oddSeen = 0
	case off == c.odd && c.oddSeen > 0:
		if c.oddSeen++; c.oddSeen >= oddLines {
			c.offset, c.oddSeen = off, 0
		}
	default:
		c.odd, c.oddSeen = off, 1
	}
}

// moment turns a local time (ns, as if it were UTC) into a moment.
func (c *clock) moment(local int64) (int64, Mark) {
	if c.zone != nil {
		t := time.Unix(0, local).UTC()
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), c.zone).UnixNano(), 0
	}
	return local - int64(c.offset), ZoneAssumed
}

// local is the other way round.
func (c *clock) local(moment int64) int64 {
	if c.zone != nil {
		_, off := time.Unix(0, moment).In(c.zone).Zone()
		return moment + int64(off)*int64(time.Second)
	}
	return moment + int64(c.offset)
}

const day = 24 * int64(time.Hour)

// at settles the time of a line.
func (l *lineState) at(p *Parser, st *stream, arrived int64) {
	c := &p.clock
	now := arrived
	if now == 0 {
		now = c.last
	}
	if now == 0 {
		now = c.reference
	}
	switch {
	case l.hasTime && l.zoned:
		l.time = l.local
	case l.hasTime && l.dated && !l.noYear:
		c.learn(l.local, arrived)
		var m Mark
		l.time, m = c.moment(l.local)
		l.marks |= m
	case l.hasTime && now != 0:
		// A time of day, or a day without its year: the date at which it is nearest to what is known.
		l.marks |= DateAssumed
		ref := c.local(now)
		var t int64
		if l.noYear {
			y := time.Unix(0, ref).UTC().Year()
			best := int64(math.MaxInt64)
			for d := -1; d <= 1; d++ {
				if x, ok := unixNano(y+d, l.month, l.dayOf, l.local); ok && abs(x-ref) < abs(best-ref) || best == math.MaxInt64 && ok {
					best = x
				}
			}
			t = best
		} else {
			t = ref - mod(ref, day) + l.local
			if t-ref > day/2 {
				t -= day
			} else if ref-t > day/2 {
				t += day
			}
		}
		if t == math.MaxInt64 {
			l.time = now
			l.marks |= TimeAssumed
			break
		}
		var m Mark
		l.time, m = c.moment(t)
		l.marks |= m
	case st.last != 0:
		l.time = st.last
		l.marks |= TimeAssumed
	case now != 0:
		l.time = now
		l.marks |= TimeAssumed
	default:
		l.marks |= TimeAssumed
	}
	if l.time != 0 {
		st.last, c.last = l.time, l.time
	}
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}

func mod(x, m int64) int64 {
	if x %= m; x < 0 {
		x += m
	}
	return x
}

// unixNano is a date with a time of day (ns) as if it were UTC.
func unixNano(year, month, day int, ofDay int64) (int64, bool) {
	if year < 1971 || year > 2261 || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day {
		return 0, false
	}
	return t.UnixNano() + ofDay, true
}

// digits reads n digits at i.
func digits(s string, i, n int) (int, bool) {
	if i+n > len(s) {
		return 0, false
	}
	v := 0
	for _, c := range []byte(s[i : i+n]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, true
}

// readDate reads YYYY-MM-DD.
func readDate(s string) (year, month, day int, ok bool) {
	if len(s) < 10 || s[4] != '-' || s[7] != '-' {
		return 0, 0, 0, false
	}
	y, a := digits(s, 0, 4)
	m, b := digits(s, 5, 2)
	d, c := digits(s, 8, 2)
	return y, m, d, a && b && c
}

// readClock reads HH:MM:SS with a fraction after a dot or a comma; n is how long it is, 0 for none.
func readClock(s string) (ofDay int64, n int) {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return 0, 0
	}
	h, a := digits(s, 0, 2)
	m, b := digits(s, 3, 2)
	sec, c := digits(s, 6, 2)
	if !a || !b || !c || h > 23 || m > 59 || sec > 60 {
		return 0, 0
	}
	ofDay, n = int64(h)*int64(time.Hour)+int64(m)*int64(time.Minute)+int64(sec)*int64(time.Second), 8
	if n < len(s) && (s[n] == '.' || s[n] == ',') {
		unit := int64(time.Second) / 10
		i := n + 1
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			ofDay += int64(s[i]-'0') * unit
			unit /= 10
		}
		if i > n+1 {
			n = i
		}
	}
	return ofDay, n
}

// readZone reads Z, +HH:MM or +HHMM; n is 0 when there is none.
func readZone(s string) (offset int64, n int) {
	if s == "" {
		return 0, 0
	}
	if s[0] == 'Z' {
		return 0, 1
	}
	if s[0] != '+' && s[0] != '-' {
		return 0, 0
	}
	h, ok := digits(s, 1, 2)
	if !ok || h > 14 {
		return 0, 0
	}
	i := 3
	if i < len(s) && s[i] == ':' {
		i++
	}
	m, ok := digits(s, i, 2)
	if !ok {
		return 0, 0
	}
	offset = int64(h)*int64(time.Hour) + int64(m)*int64(time.Minute)
	if s[0] == '-' {
		offset = -offset
	}
	return offset, i + 2
}

// readTime reads YYYY-MM-DD[T ]HH:MM:SS[.f][zone]. What it returns is ns since 1970, as if it were UTC
// when zoned is false.
func readTime(s string) (ns int64, n int, zoned bool) {
	y, m, d, ok := readDate(s)
	if !ok || len(s) < 19 || s[10] != ' ' && s[10] != 'T' {
		return 0, 0, false
	}
	of, k := readClock(s[11:])
	if k == 0 {
		return 0, 0, false
	}
	ns, ok = unixNano(y, m, d, of)
	if !ok {
		return 0, 0, false
	}
	n = 11 + k
	if off, z := readZone(s[n:]); z > 0 {
		return ns - off, n + z, true
	}
	return ns, n, false
}

func itoa(n int) string { return strconv.Itoa(n) }
