package convert

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/rollscope/rollscope/internal/timeline"
)

// lines writes one JSON object a sample, with its requests and spans in it.
type lines struct {
	o   Options
	buf *bufio.Writer
	enc *json.Encoder
}

type line struct {
	Run       string `json:"run,omitempty"`
	Kind      string `json:"kind"`
	RolloutID *int64 `json:"step"`
	sampleRecord
	RewardParts json.RawMessage `json:"reward_parts,omitempty"`
	Requests    []requestRecord `json:"requests"`
	Spans       []spanRecord    `json:"spans"`
}

func newLines(w io.Writer, o Options) *lines {
	buf := bufio.NewWriterSize(w, 1<<18)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &lines{o, buf, enc}
}

func (l *lines) Add(row *timeline.Row) error {
	out := line{Run: l.o.Run, Kind: l.o.kind(), RolloutID: integer(l.o.RolloutID), sampleRecord: ofSample(row, l.o.Texts),
		Requests: []requestRecord{}, Spans: []spanRecord{}}
	if out.sampleRecord.RewardParts != "" {
		out.RewardParts = json.RawMessage(out.sampleRecord.RewardParts)
	}
	for i := range row.Sample.Requests {
		out.Requests = append(out.Requests, ofRequest(row.Sample, &row.Sample.Requests[i]))
	}
	for i := range row.Items {
		if it := &row.Items[i]; it.Flags&timeline.Virtual == 0 {
			out.Spans = append(out.Spans, ofItem(row, it))
		}
	}
	return l.enc.Encode(out)
}

func (l *lines) Close() error { return l.buf.Flush() }
