package fpm

import (
	"fmt"
	"slices"
	"time"
)

// State is what a rank does, as far as its messages tell.
type State string

// States of a rank and of a worker. Silence is not idleness.
const (
	Working State = "working" // its last message is a pass
	Idle    State = "idle"    // its last message is a heartbeat
	Stale   State = "stale"   // silent for longer than its own rhythm allows: what it does is unknown
)

// Status is what is known of one rank.
type Status struct {
	Key    Key
	State  State
	Reason string // in words
	// Current is what the rank said last while that may still be so, nil when the state is [Stale].
	Current   *Pass
	First     int64         // when its first message came, ns since 1970
	Last      int64         // and its last one
	LastPass  int64         // and its last pass; 0 for never
	Allowance time.Duration // silence that its rhythm allows

	Passes      uint64
	Heartbeats  uint64
	Duplicates  uint64
	Late        uint64 // came after newer ones
	Missing     uint64 // were missing when a newer one came
	Filled      uint64 // of those, came late; Missing - Filled are lost
	LastGap     int64  // when messages were last found missing; 0 for never
	Restarts    uint64
	LastRestart int64  // 0 for never
	Interleaved uint64 // passes and heartbeats that came in turns with those of another sender of the same name
	Implausible uint64 // passes whose time cannot be one, see [Pass.Seconds]; they are in Passes
	LossUnknown bool   // the messages have no counter, or are a sample: losses cannot be seen

	BusySeconds float64 // sum of the times of passes
	// UnmeasuredSeconds is time in which the rank had requests and no message told of a pass, in Unmeasured
	// places: passes that were not reported because their timer was not ready, or work between passes.
	// Nothing was lost there and nothing stands still.
	UnmeasuredSeconds float64
	Unmeasured        uint64
	BusyIsLowerBound  bool // passes were lost, or not reported, so BusySeconds is the least it was

	Notices []string // what about its messages others will stumble over, in words
}

// Lost returns how many messages did not come.
func (s *Status) Lost() uint64 { return s.Missing - min(s.Filled, s.Missing) }

// Status returns what is known of a rank at a time.
func (t *Tracker) Status(now int64, key Key) (Status, bool) {
	r := t.ranks[key]
	if r == nil {
		return Status{}, false
	}
	return r.report(now, t.opt), true
}

// Statuses returns all ranks, ordered by key.
func (t *Tracker) Statuses(now int64) []Status {
	out := make([]Status, 0, len(t.ranks))
	for _, r := range t.ranks {
		out = append(out, r.report(now, t.opt))
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Key.compare(b.Key) })
	return out
}

func (r *rank) report(now int64, opt Options) Status {
	s := r.status
	s.Key, s.First, s.Last, s.LastPass = r.key, r.first, r.at, r.pass
	s.Allowance = r.allowance(opt)
	s.BusyIsLowerBound = s.Lost() > 0 || s.Unmeasured > 0 || s.LossUnknown || s.Implausible > 0
	silent := time.Duration(now - r.at)
	switch {
	case r.at == 0:
		s.State, s.Reason = Stale, "only old messages came, out of their order"
	case silent > s.Allowance:
		s.State = Stale
		s.Reason = fmt.Sprintf("silent for %s, where its rhythm allows %s; what it does now is unknown", short(silent), short(s.Allowance))
	case r.last.Heartbeat():
		s.State, s.Reason = Idle, "its last message is a heartbeat"
		if r.last.Has&HasVersion == 0 {
			s.Reason += "; an emitter of this age also sends one during a pass of more than a second"
		}
	default:
		s.State, s.Reason = Working, "its last message is a pass"
	}
	if s.State != Stale {
		p := r.last
		s.Current = &p
	}
	if r.key.Worker == "" {
		s.Notices = append(s.Notices, "worker_id is empty: Dynamo's planner throws these messages away; name the worker with --forward-pass-metrics-worker-id")
	} else if _, err := ParseWorkerID(r.key.Worker, DecimalID); err != nil {
		s.Notices = append(s.Notices, fmt.Sprintf("worker_id %q is not a decimal number: it joins no Dynamo metric", r.key.Worker))
	}
	if s.Interleaved >= often {
		s.Notices = append(s.Notices, "two senders take turns under this name: two engines have one worker_id and dp_rank, or one engine is heard on two ways that are seconds apart")
	} else if s.Restarts >= often && now-slices.Min(r.restarts[:]) <= int64(time.Minute) {
		s.Notices = append(s.Notices, fmt.Sprintf("it began anew %d times within a minute: it crashes, or two engines have one worker_id and dp_rank", often))
	}
	if s.Implausible > 0 {
		s.Notices = append(s.Notices, fmt.Sprintf("%d passes claim to have taken more than an hour: the emitter writes the time of day, not a duration", s.Implausible))
	}
	if s.Passes == 0 && s.Heartbeats > 0 {
		s.Notices = append(s.Notices, "only heartbeats came so far")
	}
	if r.last.Positional {
		s.Notices = append(s.Notices, "messages are arrays: Dynamo's own decoder refuses them")
	}
	return s
}

// short writes a duration with two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
