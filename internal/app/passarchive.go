package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/passstore"
)

// passArchive are the passes of a recording, to be read. What the engines did at its end, and what the
// planner would say of it, is worked out again from the rows, the first time somebody asks.
type passArchive struct {
	metrics metricsSource
	history string // the file with the planner's settings

	mu    sync.Mutex
	store *passstore.Store
	last  *lastPasses // nil: to be worked out
}

// renew forgets what was worked out: there are other rows. A nil store leaves the list of bursts.
func (a *passArchive) renew(store *passstore.Store) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = nil
	if store != nil {
		a.store = store
	}
}

func (a *passArchive) rows() *passstore.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.store
}

// lastPasses is the end of a recording.
type lastPasses struct {
	at      time.Time
	part    *passPart
	plan    *planning
	workers []planWorker
	note    string // what to know of the settings, "" nothing
}

// replayedPasses is how many of the newest rows are read for that.
const replayedPasses = 20000

// end works out what the engines did at the end of the recording.
func (a *passArchive) end(ctx context.Context) (*lastPasses, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil {
		return a.last, nil
	}
	rows, _, err := a.store.Query(ctx, 0, 0, "", replayedPasses)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	l := &lastPasses{plan: newPlanning(a.metrics, log)}
	l.part = newPassPart(config.ForwardPasses{}, a.metrics, func(...string) string { return "" }, l.plan, log)
	if len(rows) == 0 {
		return l, nil
	}
	l.at = time.Unix(0, rows[len(rows)-1].Time)
	l.note = l.recall(a.history)
	if l.part.scraped, err = a.metrics.scrape(ctx, l.at); err != nil {
		return nil, err
	}
	instances := map[string]string{} // by name
	for instance, e := range l.part.scraped.info {
		instances[firstSet(e.Name, instance)] = instance
	}
	l.part.pools = newPoolNames(l.plan.pools)
	for i := range rows { // the roles of a namespace are those of all its components
		l.part.pools.saw(rows[i].Key.Namespace, rows[i].Key.Component)
	}
	for i := range rows {
		r := &rows[i]
		p := passOf(r)
		seen := l.part.track.Observe(r.Time, fpm.Origin{
			Source: r.Key.Source, Namespace: r.Key.Namespace, Component: r.Key.Component, HasPublisher: r.Key.Publisher != 0, PublisherID: r.Key.Publisher,
			Sampled: true, // of an engine that came and went, and of rows beyond their retention
		}, &p)
		rank := l.part.ranks[seen.Key]
		if rank == nil {
			rank = &passRank{id: r.Engine, name: r.Name, instance: instances[r.Name]}
			rank.role = l.part.roleOf(seen.Key, rank)
			l.part.ranks[seen.Key] = rank
		}
		l.plan.observe(r.Time, seen.Key, rank.role, &p, seen)
	}
	l.workers = l.part.known(l.part.track.Workers(l.at.UnixNano()))
	l.plan.refresh(ctx, l.at, l.workers)
	a.last = l
	return l, nil
}

// recall puts the settings in force that the recorder had then; what it returns is to be told.
func (l *lastPasses) recall(path string) (note string) {
	h, err := openPlanHistory(path)
	if err == nil {
		err = l.plan.recall(h, l.at)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the planner's settings of the recording cannot be read: %v; these are Dynamo's defaults", err)
	case l.plan.origin == defaultSettings:
		return "the recording does not hold the planner's settings of that time: these are Dynamo's defaults"
	}
	return ""
}

// passOf is the message that a row was.
func passOf(r *passstore.Row) fpm.Pass {
	p := fpm.Pass{Has: fpm.HasWall | fpm.HasScheduled, Rank: r.Key.Rank, Version: fpm.Version, WorkerID: r.Key.Worker, Counter: r.Counter, Wall: r.Wall,
		Scheduled: r.Scheduled, Queued: r.Queued}
	if r.HasCounter {
		p.Has |= fpm.HasCounter
	}
	if r.HasQueued {
		p.Has |= fpm.HasQueued
	}
	return p
}

// Status implements [api.Passes].
func (a *passArchive) Status() api.ForwardPasses {
	store := a.rows()
	out := api.ForwardPasses{Rows: passRows(store), Bursts: passBursts(store)}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	l, err := a.end(ctx)
	if err != nil || l.at.IsZero() {
		return out
	}
	for i := range l.workers {
		out.Engines = append(out.Engines, l.part.engine(&l.workers[i].Worker))
	}
	return out
}

// errArchive is the answer to what only a recorder can do.
var errArchive = &api.Error{Code: "not_enabled", Message: "this is a recording: no forward passes come in", Hint: "GET /api/rollscope/v1/passes/rows has those that were kept"}

// Live implements [api.Passes].
func (a *passArchive) Live(string, string, int) (api.PassColumns, error) {
	return api.PassColumns{}, errArchive
}

// Rows implements [api.Passes].
func (a *passArchive) Rows(ctx context.Context, q api.PassQuery) (api.PassColumns, error) {
	return storedPasses(ctx, a.rows(), q)
}

// Advice implements [api.Passes].
func (a *passArchive) Advice(ctx context.Context) (api.PassAdvice, error) {
	l, err := a.end(ctx)
	if err != nil {
		return api.PassAdvice{}, err
	}
	out, err := l.plan.advice(ctx, l.at, l.workers)
	for i := range out.Deployments {
		if d := &out.Deployments[i]; l.note != "" {
			d.Notes = append(d.Notes, l.note)
		}
	}
	return out, err
}

// Capacity implements [api.Passes].
func (a *passArchive) Capacity(ctx context.Context, q api.CapacityQuery) (api.PassCapacity, error) {
	l, err := a.end(ctx)
	if err != nil {
		return api.PassCapacity{}, err
	}
	out, err := l.plan.capacity(ctx, l.at, l.workers, q)
	if l.note != "" {
		out.Assumptions = append(out.Assumptions, l.note)
	}
	return out, err
}

// Burst implements [api.Passes].
func (a *passArchive) Burst(string, string, time.Duration) (api.PassBurst, error) {
	return api.PassBurst{}, errArchive
}
