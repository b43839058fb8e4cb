package fpm

import "slices"

// QueueRule is how the queues of a worker's ranks make up the worker's.
type QueueRule string

// Queue rules. They are never averaged: an engine that has one queue for all its ranks reports it on
// rank 0 alone.
const (
	QueueSingle QueueRule = "single rank"      // there is only one
	QueueNone   QueueRule = "nothing queued"   // no rank has reported a queue yet
	QueueRank0  QueueRule = "rank 0 has it"    // only rank 0 ever reported one: it is the worker's
	QueueSum    QueueRule = "sum of the ranks" // others do too: each has its own
)

// Load is what runs on a worker: sums over its ranks.
type Load struct {
	PrefillRequests, PrefillTokens, PrefillKV uint64
	DecodeRequests, DecodeKV                  uint64
}

// Worker is what the ranks of one worker say together.
type Worker struct {
	Key    Key // of rank 0
	State  State
	Ranks  []Status // by rank
	Silent int      // ranks that are stale, and so are not part of what follows
	Load   Load
	// Wall is the longest current pass in seconds, 0 when none works. Ranks run at the same time, so their
	// times do not add up.
	Wall float64
	// Imbalance is the busiest rank's share of the load over the mean, 1 when even and 0 when unknown: of
	// decode requests, of prefill tokens where nothing decodes.
	Imbalance  float64
	Queued     Queued // without the variances, which do not add up
	QueueRule  QueueRule
	QueueKnown bool // false when no rank is current, or not the one that has the queue
}

// Workers returns the workers, ordered by key.
func (t *Tracker) Workers(now int64) []Worker {
	var out []Worker
	all := t.Statuses(now)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Key.worker() == all[0].Key.worker() {
			n++
		}
		queued := make([]bool, n)
		for i := range n {
			queued[i] = t.ranks[all[i].Key].queued
		}
		out = append(out, join(all[:n:n], queued))
		all = all[n:]
	}
	return out
}

// join makes a worker of its ranks; queued says which of them have ever reported a queue.
func join(ranks []Status, queued []bool) Worker {
	w := Worker{Key: ranks[0].Key.worker(), State: Stale, Ranks: ranks}
	rank0, others := false, false
	for i, s := range ranks {
		if queued[i] && s.Key.Rank == 0 {
			rank0 = true
		} else if queued[i] {
			others = true
		}
	}
	switch {
	case len(ranks) == 1:
		w.QueueRule = QueueSingle
	case others:
		w.QueueRule = QueueSum
	case rank0:
		w.QueueRule = QueueRank0
	default:
		w.QueueRule = QueueNone
	}
	var decode, prefill []uint64
	for _, s := range ranks {
		p := s.Current
		if p == nil {
			w.Silent++
			continue
		}
		if w.State == Stale || s.State == Working {
			w.State = s.State
		}
		w.Load.PrefillRequests += p.Scheduled.PrefillRequests
		w.Load.PrefillTokens += p.Scheduled.PrefillTokens
		w.Load.PrefillKV += p.Scheduled.PrefillKV
		w.Load.DecodeRequests += p.Scheduled.DecodeRequests
		w.Load.DecodeKV += p.Scheduled.DecodeKV
		decode, prefill = append(decode, p.Scheduled.DecodeRequests), append(prefill, p.Scheduled.PrefillTokens)
		if seconds, ok := p.Seconds(); ok {
			w.Wall = max(w.Wall, seconds)
		}
		if w.QueueRule == QueueRank0 && s.Key.Rank != 0 {
			continue
		}
		w.QueueKnown = true
		w.Queued.PrefillRequests += p.Queued.PrefillRequests
		w.Queued.PrefillTokens += p.Queued.PrefillTokens
		w.Queued.DecodeRequests += p.Queued.DecodeRequests
		w.Queued.DecodeKV += p.Queued.DecodeKV
	}
	if w.Imbalance = imbalance(decode); w.Imbalance == 0 {
		w.Imbalance = imbalance(prefill)
	}
	return w
}

// imbalance returns maximum over mean, 0 when there is nothing.
func imbalance(of []uint64) float64 {
	var sum float64
	for _, n := range of {
		sum += float64(n)
	}
	if sum == 0 {
		return 0
	}
	return float64(slices.Max(of)) * float64(len(of)) / sum
}
