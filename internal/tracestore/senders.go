package tracestore

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/rollscope/rollscope/internal/logsql"
)

// Sender is one process, as far as spans tell processes apart, that sent under a service's name.
type Sender struct {
	Service string
	Engine  string // instance that the recorder knows it as, "" when it knows none
	Process string // instance id, host and pid as the spans have them, "" when they have none
	Spans   int64
}

// processFields are those that tell two processes of one service apart; SGLang writes the last two on the
// spans of its threads only.
var processFields = []string{"resource_attr:service.instance.id", "resource_attr:host.name", "resource_attr:process.pid", "span_attr:host_id", "span_attr:pid"}

// maxSenders bounds the answer of Senders.
const maxSenders = 1000

// Senders lists who sent spans in the range, most spans first.
func (st *Store) Senders(ctx context.Context, from, to int64) ([]Sender, error) {
	text := spansOnly + " | stats by (service, engine"
	for _, f := range processFields {
		text += ", " + logsql.Quote(f)
	}
	text += ") count() as n | sort by (n desc) limit " + strconv.Itoa(maxSenders)
	var out []Sender
	err := st.query(ctx, text, from, to, func(r row) error {
		s := Sender{Service: r.get("service"), Engine: r.get("engine"), Spans: r.int("n")}
		for _, f := range processFields {
			if v := r.get(f); v != "" {
				s.Process += v + " "
			}
		}
		out = append(out, s)
		return nil
	})
	slices.SortFunc(out, func(a, b Sender) int {
		return cmp.Or(cmp.Compare(b.Spans, a.Spans), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Process, b.Process))
	})
	return out, err
}
