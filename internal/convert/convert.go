package convert

import (
	"fmt"
	"io"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
)

// Options say what is written.
type Options struct {
	// Texts includes prompts and responses, most of a dump's bytes.
	Texts bool
	// Run, Kind and RolloutID name the step; a missing RolloutID is left out.
	Run       string
	Kind      rollout.Kind
	RolloutID rollout.Int
	Version   string // of this program, for the scope of OTLP spans
}

func (o Options) kind() string {
	if o.Kind == rollout.Eval {
		return "eval"
	}
	return "train"
}

// Writer takes the rows of one dump. What it wrote is complete once Close has returned nil.
type Writer interface {
	Add(row *timeline.Row) error
	Close() error
}

// Formats are the names that [New] takes.
func Formats() []string { return []string{"jsonl", "otlp", "parquet"} }

// New starts a dump in a format. open is called once for each file with its suffix after the dump's
// name (".jsonl"; of parquet ".samples.parquet", ".requests.parquet" and ".spans.parquet"); closing
// what it returned is the caller's.
func New(format string, open func(suffix string) (io.Writer, error), o Options) (Writer, error) {
	switch format {
	case "jsonl":
		w, err := open(".jsonl")
		if err != nil {
			return nil, err
		}
		return newLines(w, o), nil
	case "otlp":
		w, err := open(".otlp.jsonl")
		if err != nil {
			return nil, err
		}
		return newOTLP(w, o), nil
	case "parquet":
		return newTables(open, o)
	}
	return nil, fmt.Errorf("there is no format %q", format)
}
