package dumps

import (
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
)

// Mark is what is known of the dump of a step: the file that it was read from, and its content.
type Mark struct {
	Path        string
	Size        int64 // bytes
	ModTime     time.Time
	Fingerprint string
}

// Index tells what was processed before, over restarts. It is called from one goroutine.
type Index interface {
	// Known returns the mark of the step's newest attempt, and false when there is none or it must be processed
	// again.
	Known(run string, kind rollout.Kind, rolloutID int64) (Mark, bool)
}

// StoreIndex is the Index that a rollout store is. A step that another version of the analysis made
// counts as not known.
type StoreIndex struct {
	Store    *rolloutstore.Store
	Analysis string // "": any
}

// Known implements [Index].
func (x StoreIndex) Known(run string, kind rollout.Kind, rolloutID int64) (Mark, bool) {
	d, analysis, err := x.Store.Dump(rolloutstore.ID{Run: run, Kind: kind, RolloutID: rolloutID, Attempt: rolloutstore.Newest})
	if err != nil || x.Analysis != "" && analysis != x.Analysis {
		return Mark{}, false
	}
	return Mark{d.Path, d.Size, d.ModTime, d.Fingerprint}, true
}

// Name is the name of the run that has a pattern, for [NameRuns].
func (x StoreIndex) Name(path string) string {
	for _, r := range x.Store.Runs() {
		if r.Pattern == path {
			return r.Name
		}
	}
	return ""
}

// Taken says whether a run with another pattern has a name, for [NameRuns]. A run whose pattern was
// never said may have any.
func (x StoreIndex) Taken(name, path string) bool {
	r, err := x.Store.Run(name)
	return err == nil && r.Pattern != "" && r.Pattern != path
}
