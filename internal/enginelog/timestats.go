package enginelog

import (
	"math"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// absurd is how long a duration cannot be, in seconds: one of decades is a time that was taken for one.
const absurd = 7 * 24 * 3600

// epoch is the least number of seconds that is a date rather than an uptime: September 2001.
const epoch = 1e9

// nanos turns seconds into ns, to the microsecond.
func nanos(seconds float64) int64 { return int64(math.Round(seconds*1e6)) * 1000 }

// duration makes seconds a value: negative and absurd ones are invalid, with what was said kept.
func duration(seconds float64) request.Value {
	v := request.Value{V: seconds, State: request.Known}
	if seconds < 0 || seconds > absurd || seconds != seconds {
		v.State = request.Invalid
	}
	return v
}

// count makes a number of things a value.
func count(n float64) request.Value {
	v := request.Value{V: n, State: request.Known}
	if n < 0 || n > 1e15 || n != n {
		v.State = request.Invalid
	}
	return v
}

// timeStats reads SGLang's request time statistics of all generations, what stands behind "(": named
// values in the bracket, then name=value unit and name(value unit), in any order.
func (l *lineState) timeStats(s string) {
	l.set("sglang.req_time_stats", None)
	head, body, ok := strings.Cut(s, "):")
	if !ok {
		l.marks |= Cut
		head, body = s, ""
	}
	o := &request.Observation{Source: request.FromLog, TimeRank: 1, Final: true}
	kind := ""
	for _, part := range strings.Split(head, ", ") {
		key, val, ok := strings.Cut(part, "=")
		if !ok {
			l.marks |= Cut
			continue
		}
		val = strings.Trim(val, "'\"")
		switch strings.ReplaceAll(key, " ", "_") {
		case "rid":
			if val != "" {
				l.add("rid", val)
				o.Aliases = append(o.Aliases, request.Alias{Kind: request.RID, ID: val})
			}
		case "bootstrap_room":
			if isDigits(val) {
				l.add("bootstrap_room", val)
				o.Aliases = append(o.Aliases, request.Alias{Kind: request.BootstrapRoom, ID: val})
			}
		case "input_len":
			l.countOf(&o.PromptTokens, "prompt_tokens", val)
		case "output_len":
			l.countOf(&o.CompletionTokens, "completion_tokens", val)
		case "cached_input_len":
			l.countOf(&o.CachedTokens, "cached_tokens", val)
		case "attempts":
			l.num("attempts", val)
		case "type":
			kind = strings.ToLower(val)
			l.add("role", kind)
		}
	}
	switch kind {
	case "prefill", "decode", "unified":
		o.Role = kind
	}
	start, known := l.timeStatsBody(o, kind, body)
	o.Finish = l.time
	switch {
	case start > epoch:
		o.Start, o.TimeRank = int64(start*1e3+0.5)*1e6, 0
		if second := int64(1e9); l.time%second == 0 {
			// Written to the second: the request ended within it, and not before its phases were over.
			o.Finish = max(l.time, min(o.Start+nanos(known), l.time+second-1))
		}
	case known > 0 && l.time != 0:
		// Without a date of its own: the line comes at the request's end.
		o.Start = l.time - nanos(known)
	default:
		o.Start = l.time
	}
	if start > epoch && o.Start > o.Finish+int64(absurd*1e9) {
		o.Start, o.TimeRank = l.time, 1
		l.marks |= Invalid
	}
	if len(o.Aliases) == 0 || strings.HasPrefix(o.Aliases[0].ID, "HEALTH_CHECK") {
		return
	}
	l.request = o
}

func (l *lineState) countOf(to *request.Value, field, val string) {
	f, err := strconv.ParseFloat(val, 64)
	if err != nil {
		l.marks |= Cut
		return
	}
	*to = count(f)
	l.add(field, val)
	if to.State == request.Invalid {
		l.marks |= Invalid
	}
}

// statsPhases are the durations of the two halves of a PD pair by the name in the line.
var statsPhases = [...]struct {
	kind, name string
	phase      request.Phase
}{
	{"prefill", "bootstrap_queue_duration", request.PrefillBootstrapQueue},
	{"prefill", "bootstrap_duration", request.PrefillBootstrap},
	{"prefill", "bootstrap", request.PrefillBootstrap},
	{"prefill", "alloc_wait_duration", request.PrefillAllocWait},
	{"prefill", "alloc_wait", request.PrefillAllocWait},
	{"prefill", "forward_duration", request.PrefillForward},
	{"decode", "prealloc_queue_duration", request.DecodePrealloc},
	{"decode", "bootstrap_duration", request.DecodeBootstrap},
	{"decode", "bootstrap", request.DecodeBootstrap},
	{"decode", "alloc_wait_duration", request.DecodeAllocWait},
	{"decode", "alloc_wait", request.DecodeAllocWait},
	{"decode", "transfer_duration", request.DecodeTransfer},
	{"decode", "forward_duration", request.DecodeForward},
}

// timeStatsBody reads the durations. Start is the request's begin in seconds, 0 when the line says none;
// known is the sum of the durations that follow one another.
func (l *lineState) timeStatsBody(o *request.Observation, kind, body string) (start, known float64) {
	for body != "" {
		i := strings.IndexAny(body, "=(")
		if i < 0 {
			break
		}
		name := strings.TrimLeft(body[:i], " ,;+=#)")
		val := body[i+1:]
		if body[i] == '=' && strings.HasPrefix(strings.TrimLeft(val, " "), "bootstrap(") {
			body = val // "x(1ms) = bootstrap(1ms) + ..."
			continue
		}
		n := 0
		val = strings.TrimLeft(val, " ")
		for n < len(val) && (val[n] >= '0' && val[n] <= '9' || val[n] == '.' || n == 0 && val[n] == '-' || val[n] == 'e' || val[n] == '+' && n > 0 && val[n-1] == 'e') {
			n++
		}
		f, err := strconv.ParseFloat(val[:n], 64)
		body = strings.TrimLeft(val[n:], " ")
		if err != nil {
			if strings.HasPrefix(body, "nan") || strings.HasPrefix(body, "inf") {
				l.marks |= NotFinite
				body = body[3:]
			} else {
				l.marks |= Cut
			}
			continue
		}
		unit := 0
		for unit < len(body) && (body[unit] >= 'a' && body[unit] <= 'z' || body[unit] >= 'A' && body[unit] <= 'Z' || body[unit] == '/') {
			unit++
		}
		u := body[:unit]
		body = strings.TrimLeft(body[unit:], " )")
		switch u {
		case "ms":
			f /= 1000
			l.statsDuration(o, kind, name, f)
			switch name {
			case "queue_duration", "forward_duration", "transfer_duration", "prealloc_queue_duration", "bootstrap_queue_duration":
				if d := duration(f); d.State == request.Known {
					known += f
				}
			}
		case "GB/s":
			o.TransferSpeed = count(f)
			l.add("transfer_speed_gb_s", strconv.FormatFloat(f, 'g', -1, 64))
		case "MB":
			o.TransferSize = count(f)
			l.add("transfer_total_mb", strconv.FormatFloat(f, 'g', -1, 64))
		default:
			switch name {
			case "entry_time", "start_time", "start":
				start = f
				l.add(name, val[:n])
			case "retries":
				o.Retries = count(f)
				l.add("retries", val[:n])
			}
		}
	}
	return start, known
}

// statsDuration notes one duration in seconds.
func (l *lineState) statsDuration(o *request.Observation, kind, name string, seconds float64) {
	v := duration(seconds)
	field := strings.TrimSuffix(name, "_duration")
	if field == "" || !isLogger(field) {
		return
	}
	if v.State == request.Invalid {
		l.marks |= Invalid
		l.add(field+"_invalid_seconds", strconv.FormatFloat(seconds, 'g', -1, 64))
	} else {
		l.add(field+"_seconds", strconv.FormatFloat(seconds, 'g', 12, 64))
	}
	switch {
	case name == "queue_duration":
		o.Queue = v
	case kind == "decode" && name == "transfer_duration":
		o.Transfer = v
	case kind == "prefill" && name == "forward_duration":
		o.Prefill = v
	case kind == "decode" && name == "forward_duration":
		o.Decode = v
	}
	for _, p := range statsPhases {
		if p.kind == kind && p.name == name {
			o.Phases[p.phase] = v
		}
	}
	if v.State == request.Invalid {
		o.Flags = appendFlag(o.Flags, flagOf(name, seconds))
	}
}

// flagOf names what is wrong with a duration.
func flagOf(name string, seconds float64) string {
	what := strings.TrimSuffix(name, "_duration")
	if what == "queue" || what == "queue_time" {
		what = "queue_time"
	}
	if seconds < 0 {
		return "negative_" + what
	}
	return "absurd_" + what
}

func appendFlag(list []string, f string) []string {
	for _, x := range list {
		if x == f {
			return list
		}
	}
	return append(list, f)
}
