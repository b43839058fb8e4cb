package span

import (
	"fmt"
	"sort"
	"strings"
)

// Level is how much SGLang tells in a stream of spans, as far as its names show.
type Level struct {
	// Level is what SGLANG_TRACE_LEVEL is at least, 1 to 4; 0 when no span is SGLang's, or when its release
	// is older than the levels (then Generation says so: it sends what level 3 sends).
	Level int
	// Sure is false when the level may be higher than the spans show: too few requests were seen, or only
	// ones without an answer.
	Sure       bool
	Generation string // 0.5.3, 0.5.4-0.5.9, 0.5.10+, "" when it cannot be told
	// Missing says what the next levels would add, one entry a level.
	Missing  []string
	Requests int64 // spans of requests on engines
	Spans    int64 // SGLang's spans
	// ByLevel counts SGLang's spans by the level that they need; [0] are those of every level: requests and threads.
	ByLevel [5]int64
}

var levelNames = [5]string{
	1: "tokenize, prefill_waiting, prefill_forward, decode_forward and the stages of PD: the phases of a request",
	2: "request_process, api_server_dispatch, dpc_dispatch, spec_draft, spec_verify: the ways between processes",
	3: "decode_loop, chunked_prefill, fake_output and the event schedule: each pass, one span a token",
	4: "run_batch_cpu: the CPU's part of each pass, with pipeline parallelism only",
}

// enough is how many requests are needed to say that a kind of span does not come.
const enough = 20

// LevelOf tells the level of a stream by how many spans of each name it has.
func LevelOf(names map[string]int64) Level {
	var l Level
	old, new := false, false
	for name, n := range names {
		m := Explain(name)
		if m.System != "sglang" {
			continue
		}
		l.Spans += n
		l.ByLevel[m.Level] += n
		if m.Class == ClassRequest {
			l.Requests += n
		}
		switch {
		case m.Since == sglang0510:
			new = true
		case m.Since == "0.5.3-0.5.9" || m.Since == sglang054:
			old = true
		}
		if m.Since == sglang053 {
			l.Generation = sglang053
		}
		l.Level = max(l.Level, m.Level)
	}
	if l.Spans == 0 {
		return Level{}
	}
	switch {
	case new:
		l.Generation = sglang0510
	case l.Generation == "" && old:
		l.Generation = sglang054
	}
	if l.Generation == sglang053 || l.Generation == sglang054 {
		l.Level, l.Sure = 0, true
		l.Missing = []string{"levels: SGLANG_TRACE_LEVEL is read since 0.5.10; before it every token is a span"}
		return l
	}
	// Pipeline parallelism may be off: then 3 and 4 look the same.
	l.Sure = l.Requests >= enough || l.Level >= 3
	for i := l.Level + 1; i < len(levelNames); i++ {
		l.Missing = append(l.Missing, fmt.Sprintf("level %d: %s", i, levelNames[i]))
	}
	return l
}

// PerHour estimates how many spans an hour the stream would have at another level: it was seen for so
// many seconds, and answers have so many tokens on average (0 when that is not known). ok is false when
// there is nothing to estimate by.
func (l Level) PerHour(level int, seconds, tokens float64) (spans float64, ok bool) {
	if seconds <= 0 || l.Requests == 0 || level < 1 || level > 4 {
		return 0, false
	}
	per := float64(l.ByLevel[0])
	for i := 1; i <= level; i++ {
		switch {
		case l.ByLevel[i] > 0 || i <= l.Level:
			per += float64(l.ByLevel[i])
		case i == 2:
			per += 2 * float64(l.Requests) // request_process, api_server_dispatch
		case i == 3:
			if tokens <= 0 {
				return 0, false
			}
			per += tokens * float64(l.Requests)
		}
	}
	return per * 3600 / seconds, true
}

// ServiceDrops says of one service's spans how many lost attributes to its SDK's limits.
type ServiceDrops struct {
	Service    string
	Spans      int64 // that lost some
	Attributes int64 // that were lost
}

// DropsOf adds up what the senders' limits cost, by service, most spans first.
func DropsOf(spans []Span) []ServiceDrops {
	by := map[string]*ServiceDrops{}
	for i := range spans {
		s := &spans[i]
		n := int64(s.DroppedAttrs)
		for k := range s.Events {
			n += int64(s.Events[k].Dropped)
		}
		for k := range s.Links {
			n += int64(s.Links[k].Dropped)
		}
		if n == 0 {
			continue
		}
		d := by[s.Service]
		if d == nil {
			d = &ServiceDrops{Service: s.Service}
			by[s.Service] = d
		}
		d.Spans++
		d.Attributes += n
	}
	out := make([]ServiceDrops, 0, len(by))
	for _, d := range by {
		out = append(out, *d)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Spans != out[j].Spans {
			return out[i].Spans > out[j].Spans
		}
		return out[i].Service < out[j].Service
	})
	return out
}

// LimitVariables are the environment variables of OpenTelemetry's SDKs that raise the limits, most
// specific first. The default is 128 each.
var LimitVariables = [...]string{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"}

// DroppedText says of one span what its sender dropped, "" when nothing.
func (s *Span) DroppedText() string {
	var parts []string
	add := func(n uint32, what string) {
		if n == 1 {
			what = strings.TrimSuffix(what, "s")
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(s.DroppedAttrs, "attributes")
	add(s.DroppedEvents, "events")
	add(s.DroppedLinks, "links")
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + " dropped by the sender"
}

// Text says what to do about the drops.
func (d ServiceDrops) Text() string {
	service := d.Service
	if service == "" {
		service = "a service without a name"
	}
	return fmt.Sprintf("%s: %d attributes of %d spans were dropped by the sender's limits; raise %s in its environment",
		service, d.Attributes, d.Spans, strings.Join(LimitVariables[:], ", "))
}
