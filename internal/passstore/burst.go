package passstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Burst is a stretch of time of which every pass is kept as long as other events.
type Burst struct {
	ID      string `json:"id"`
	Trigger string `json:"trigger"` // "manual", "gap", "restart", "model_change", "alert"
	Reason  string `json:"reason"`
	Engine  string `json:"engine"` // "" for all
	From    int64  `json:"from"`   // ns since 1970
	To      int64  `json:"to"`
	Rows    int64  `json:"rows"`
	Done    bool   `json:"done"`
}

// Manual is the trigger of bursts that somebody asks for; they have no limit.
const Manual = "manual"

// ErrOff is the answer to a burst while no rows are kept.
var ErrOff = errors.New("forward_passes.keep is off: no passes are stored")

// ErrTooMany is the answer to a burst that would start by itself when as many did in the last hour as may.
var ErrTooMany = errors.New("as many bursts started in the last hour as may")

// maxBursts is how many the list has.
const maxBursts = 1000

// bursts is the list. It is not safe for concurrent use.
type bursts struct {
	file    string
	perHour int
	list    []*Burst // oldest first
	running []*Burst
}

// load reads the list of a former process: what ran then has ended.
func (b *bursts) load(file string) error {
	b.file = file
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &b.list)
	}
	if err != nil {
		return fmt.Errorf("the list of bursts cannot be read (remove %s to begin a new one; the rows stay): %w", file, err)
	}
	b.list = slices.DeleteFunc(b.list, func(x *Burst) bool { return x == nil })
	for _, x := range b.list {
		x.Done = true
	}
	return nil
}

// save writes the list.
func (b *bursts) save() error {
	if b.file == "" {
		return nil
	}
	text, err := json.MarshalIndent(b.list, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(b.file+".new", b.file)
}

// start begins one, or makes one of the same engine longer that runs. until is the end of the time before now
// that is to be taken out of memory: what lies between it and now the burst has.
func (b *bursts) start(now time.Time, trigger, reason, engine string, around time.Duration) (x *Burst, until int64, err error) {
	ns := now.UnixNano()
	b.end(ns)
	for _, r := range b.running {
		if r.Engine == engine || r.Engine == "" {
			r.To = max(r.To, ns+int64(around))
			if !strings.Contains(r.Reason, reason) && len(r.Reason) < 500 {
				r.Reason += "; " + reason
			}
			until = r.From
			r.From = min(r.From, ns-int64(around))
			return r, until, nil
		}
	}
	if trigger != Manual {
		n := 0
		for _, r := range b.list {
			if r.Trigger != Manual && r.From > ns-int64(time.Hour) {
				n++
			}
		}
		if n >= b.perHour {
			return nil, 0, ErrTooMany
		}
	}
	id := ns
	for slices.ContainsFunc(b.list, func(o *Burst) bool { return o.ID == strconv.FormatInt(id, 36) }) {
		id++ // of two engines in the same moment
	}
	x = &Burst{ID: strconv.FormatInt(id, 36), Trigger: trigger, Reason: reason, Engine: engine, From: ns - int64(around), To: ns + int64(around)}
	if b.list = append(b.list, x); len(b.list) > maxBursts {
		b.list = b.list[len(b.list)-maxBursts:]
	}
	b.running = append(b.running, x)
	return x, math.MaxInt64, nil
}

// end takes out those that are over; it returns whether there were any.
func (b *bursts) end(now int64) bool {
	n := len(b.running)
	b.running = slices.DeleteFunc(b.running, func(x *Burst) bool {
		x.Done = x.To < now
		return x.Done
	})
	return len(b.running) < n
}

// count counts a row that is stored.
func (b *bursts) count(id string) {
	for _, x := range slices.Backward(b.list) {
		if x.ID == id {
			x.Rows++
			return
		}
	}
}

// Burst keeps every pass of an engine ("" for all) from so long before now until so long after it. One that
// runs already is made longer instead.
func (s *Store) Burst(trigger, reason, engine string, around time.Duration) (Burst, error) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep == KeepNone {
		return Burst{}, ErrOff
	}
	x, until, err := s.bursts.start(now, trigger, reason, engine, around)
	if err != nil {
		s.drops["bursts_per_hour"]++
		return Burst{}, err
	}
	if x.From < until {
		first, end := s.recent.numbers(x.From)
		s.stretches = append(s.stretches, stretch{burst: x.ID, engine: x.Engine, from: x.From, until: until, next: first, end: end})
		s.awake()
	}
	s.saveBursts()
	return *x, nil
}

// saveBursts writes the list. The lock is held.
func (s *Store) saveBursts() {
	if err := s.bursts.save(); err != nil {
		s.log.Warn("the list of bursts was not written", "err", err)
	}
}

// Bursts lists them, the newest first.
func (s *Store) Bursts() []Burst {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Burst, 0, len(s.bursts.list))
	for _, x := range slices.Backward(s.bursts.list) {
		out = append(out, *x)
	}
	return out
}

// splitEngine takes namespace/component/worker apart; nil when it is none. Names of the event plane have no
// slash, a worker may: it is told by where it is heard.
func splitEngine(id string) []string {
	parts := strings.SplitN(id, "/", 3)
	if len(parts) != 3 {
		return nil
	}
	return parts
}

func cutPublisher(worker string) (string, bool) {
	n, ok := strings.CutPrefix(worker, "publisher-")
	return n, ok && digits(n)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
