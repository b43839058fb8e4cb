package enginelog

import (
	"strings"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// lineState is a line in work.
type lineState struct {
	p *Parser

	// The time as it was written. Local is ns since 1970 as if it were UTC, the true moment when zoned;
	// ns of the day when not dated, and with noYear, for which month and dayOf stand beside.
	hasTime, zoned, dated, noYear bool
	local                         int64
	month, dayOf                  int
	time                          int64

	actor, pid, ip, who string
	repeat              int
	engineLine          bool // stands behind a time stamp in brackets, as SGLang writes it

	msg, format, level string
	class              Class
	marks              Mark
	fields             []event.Field
	request            *request.Observation
	step               *Step
	block              blockKind // begins or continues a block
}

// maxFields bounds what is read in one line: no program writes as much.
const maxFields = 300

func (l *lineState) add(name, value string) {
	if len(l.fields) >= maxFields {
		l.marks |= Truncated
		return
	}
	if value != "" {
		l.fields = append(l.fields, event.Field{Name: name, Value: value})
	}
}

// set is a line's format and class.
func (l *lineState) set(format string, class Class) {
	l.format, l.class = format, class
}

// prefix takes off what others wrote before and behind a line: srun's task number, Ray's actor, Ray's
// count of repeated lines.
func (l *lineState) prefix(s string) string {
	s = l.repeated(s)
	if task, rest, ok := strings.Cut(s, ": "); ok && len(task) <= 4 && isDigits(task) && looksLikeLine(rest) {
		l.add("task", task)
		s = rest
	}
	return l.ray(s)
}

// looksLikeLine tells a line behind srun's label from a text with a number and a colon.
func looksLikeLine(s string) bool {
	if s == "" {
		return false
	}
	if s[0] == '(' || s[0] == '[' {
		return true
	}
	for _, w := range levelWords {
		if strings.HasPrefix(s, w.word) {
			return true
		}
	}
	_, n, _ := readTime(s)
	return n > 0
}

// ray takes off "(Actor pid=N) ", "(Actor pid=N, ip=A) ", "(raylet) ", "(raylet, ip=A) ".
func (l *lineState) ray(s string) string {
	if len(s) < 4 || s[0] != '(' {
		return s
	}
	head := s
	if len(head) > 300 {
		head = head[:300]
	}
	if i := strings.Index(head, " pid="); i > 1 {
		j := i + 5
		for j < len(head) && head[j] >= '0' && head[j] <= '9' {
			j++
		}
		if j == i+5 || j >= len(head) {
			return s
		}
		actor, pid, ip := head[1:i], head[i+5:j], ""
		if strings.HasPrefix(head[j:], ", ip=") {
			k := strings.IndexByte(head[j:], ')')
			if k < 0 {
				return s
			}
			ip = head[j+5 : j+k]
			j += k
		}
		if j >= len(head) || head[j] != ')' {
			return s
		}
		l.actor, l.pid, l.ip, l.who = actor, pid, ip, s[:j+1]
		l.add("actor", actor)
		l.add("pid", pid)
		l.add("ip", ip)
		return strings.TrimPrefix(s[j+1:], " ")
	}
	for _, w := range [...]string{"raylet", "gcs_server", "autoscaler", "scheduler"} {
		if rest, ok := strings.CutPrefix(head[1:], w); ok && rest != "" && (rest[0] == ')' || rest[0] == ',' || rest[0] == ' ') {
			k := strings.IndexByte(rest, ')')
			if k < 0 {
				return s
			}
			l.actor, l.who = w, s[:1+len(w)+k+1]
			l.add("actor", w)
			if ip, ok := strings.CutPrefix(rest[:k], ", ip="); ok {
				l.ip = ip
				l.add("ip", ip)
			}
			return strings.TrimPrefix(s[len(l.who):], " ")
		}
	}
	return s
}

// repeated takes off " [repeated Nx across cluster]" and Ray's explanation of it.
func (l *lineState) repeated(s string) string {
	if n := len(s); n < 20 || s[n-1] != ']' && s[n-1] != ')' && s[n-1] != ' ' {
		return s
	}
	i := strings.LastIndex(s, "[repeated ")
	if i < 0 {
		return s
	}
	rest := s[i+10:]
	k := strings.IndexByte(rest, 'x')
	if k <= 0 || k > 9 || !isDigits(rest[:k]) || !strings.HasPrefix(rest[k:], "x across cluster]") {
		return s
	}
	n := 0
	for _, c := range []byte(rest[:k]) {
		n = n*10 + int(c-'0')
	}
	if tail := strings.TrimSpace(rest[k+17:]); n < 1 || tail != "" && !strings.HasPrefix(tail, "(Ray deduplicates") {
		return s
	}
	l.repeat = n
	if n > 1 {
		l.marks |= NoRepeat
	}
	return strings.TrimRight(s[:i], " ")
}

type levelWord struct{ word, level string }

// levelWords are written before a message, the longer of two that begin alike first.
var levelWords = [...]levelWord{
	{"INFO", "info"}, {"WARNING", "warning"}, {"WARN", "warning"}, {"ERROR", "error"}, {"DEBUG", "debug"},
	{"CRITICAL", "critical"}, {"FATAL", "critical"}, {"TRACE", "debug"},
}

// readLevel reads a level word that ends there; n is its length, 0 for none.
func readLevel(s string) (level string, n int) {
	if s == "" || s[0] < 'A' || s[0] > 'W' {
		return "", 0
	}
	for _, w := range levelWords {
		if strings.HasPrefix(s, w.word) && (len(s) == len(w.word) || !isWord(s[len(w.word)])) {
			return w.level, len(w.word)
		}
	}
	return "", 0
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// stamp takes the time, ranks, level and place in the code off the line.
func (l *lineState) stamp(s string) string {
	if s == "" {
		return s
	}
	switch {
	case s[0] == '[':
		if rest, ok := l.bracket(s); ok {
			return l.afterStamp(l.bracketLevel(rest))
		}
		if rest := l.bracketLevel(s); len(rest) < len(s) {
			if in, ok := l.bracket(rest); ok { // [LEVEL] [time] message
				return in
			}
			return rest
		}
		if strings.HasPrefix(s, "[rank") {
			return l.torch(s)
		}
		if rest, ok := l.glog(s[1:], ']'); ok {
			return rest
		}
	case s[0] >= '0' && s[0] <= '9':
		if ns, n, zoned := readTime(s); n > 0 {
			l.hasTime, l.dated, l.zoned, l.local = true, true, zoned, ns
			return l.afterTime(strings.TrimLeft(s[n:], " \t"))
		}
	case s[0] == 'I' || s[0] == 'W' || s[0] == 'E' || s[0] == 'F' || s[0] == 'D' || s[0] == 'C':
		if rest, ok := l.glog(s, ']'); ok {
			return rest
		}
		return l.afterStamp(s)
	}
	return s
}

// bracketLevel reads "[LEVEL] ", as many logging configurations of teams write it.
func (l *lineState) bracketLevel(s string) string {
	if len(s) < 6 || s[0] != '[' {
		return s
	}
	level, n := readLevel(s[1:])
	if n == 0 || len(s) <= n+1 || s[n+1] != ']' {
		return s
	}
	l.level = level
	if l.format == "" && !l.engineLine {
		l.format = "python.text"
	}
	return strings.TrimLeft(s[n+2:], " ")
}

// bracket reads "[time ranks] ". Ranks are words of letters and a number; a bracket with anything else
// is not this.
func (l *lineState) bracket(s string) (rest string, ok bool) {
	end := strings.IndexByte(s, ']')
	if end < 0 || end > 120 {
		return s, false
	}
	in := s[1:end]
	n := 0
	if ns, k, zoned := readTime(in); k > 0 {
		l.local, l.dated, l.zoned, n = ns, true, zoned, k
	} else if of, k := readClock(in); k > 0 {
		l.local, n = of, k
	}
	at := len(l.fields)
	for _, w := range strings.Fields(in[n:]) {
		name, rank := rankOf(w)
		if name == "" {
			l.fields = l.fields[:at]
			l.local, l.dated, l.zoned = 0, false, false
			return s, false
		}
		l.add(name, rank)
	}
	if n == 0 && len(l.fields) == at {
		return s, false
	}
	l.hasTime, l.engineLine = n > 0, true
	return strings.TrimPrefix(s[end+1:], " "), true
}

// rankNames are the parallel dimensions of SGLang's prefix.
var rankNames = [...]struct{ word, field string }{
	{"DP", "dp_rank"}, {"TP", "tp_rank"}, {"EP", "moe_ep_rank"}, {"PP", "pp_rank"}, {"ATTN_CP", "attn_cp_rank"}, {"MOE_DP", "moe_dp_rank"},
	{"CP", "cp_rank"},
}

func rankOf(w string) (name, rank string) {
	for _, r := range rankNames {
		if n, ok := strings.CutPrefix(w, r.word); ok && isDigits(n) && len(n) < 7 {
			return r.field, n
		}
	}
	return "", ""
}

// torch reads "[rankN]:[Lmdd HH:MM:SS.n File.cpp:N] ".
func (l *lineState) torch(s string) string {
	end := strings.IndexByte(s, ']')
	if end < 0 || !isDigits(s[5:end]) || !strings.HasPrefix(s[end:], "]:") {
		return s
	}
	rest := s[end+2:]
	l.add("rank", s[5:end])
	l.format = "torch.text"
	if strings.HasPrefix(rest, "[") {
		if r, ok := l.glog(rest[1:], ']'); ok {
			return r
		}
	}
	return strings.TrimLeft(rest, " ")
}

// glog reads "Lmmdd HH:MM:SS.n [thread] file:N] ", where torch writes the month with one digit too.
func (l *lineState) glog(s string, end byte) (rest string, ok bool) {
	if s == "" {
		return s, false
	}
	level := ""
	switch s[0] {
	case 'I':
		level = "info"
	case 'W':
		level = "warning"
	case 'E':
		level = "error"
	case 'F', 'C':
		level = "critical"
	case 'D', 'V':
		level = "debug"
	default:
		return s, false
	}
	i := 1
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i != 4 && i != 5 || i >= len(s) || s[i] != ' ' {
		return s, false
	}
	month, _ := digits(s, 1, i-3)
	dayOf, _ := digits(s, i-2, 2)
	of, n := readClock(s[i+1:])
	stop := strings.IndexByte(s, end)
	if n == 0 || month < 1 || month > 12 || dayOf < 1 || dayOf > 31 || stop < i+1+n || stop > i+200 {
		return s, false
	}
	l.hasTime, l.dated, l.noYear, l.local, l.month, l.dayOf, l.level = true, true, true, of, month, dayOf, level
	in := strings.Fields(s[i+1+n : stop])
	if len(in) > 0 {
		l.add("code", in[len(in)-1])
	}
	if l.format == "" {
		l.format = "glog.text"
	}
	return strings.TrimLeft(s[stop+1:], " "), true
}

// afterStamp reads what stands behind SGLang's bracket: uvicorn's level, slime's "file.py:N - ", or the
// first words of vLLM's lines.
func (l *lineState) afterStamp(s string) string {
	level, n := readLevel(s)
	if n == 0 {
		return l.place(s)
	}
	rest := s[n:]
	switch {
	case strings.HasPrefix(rest, ":  "):
		l.level, l.format = level, "uvicorn.text"
		return strings.TrimLeft(rest[1:], " ")
	case strings.HasPrefix(rest, ":"):
		// Python's basicConfig: LEVEL:logger:message; uvicorn with few blanks: LEVEL: message.
		l.level = level
		if logger, msg, ok := strings.Cut(rest[1:], ":"); ok && logger != "" && isLogger(logger) {
			l.add("logger", logger)
			l.format = "python.text"
			return strings.TrimLeft(msg, " ")
		}
		l.format = "uvicorn.text"
		return strings.TrimLeft(rest[1:], " ")
	case strings.HasPrefix(rest, " "):
		rest = strings.TrimLeft(rest, " ")
		if len(rest) > 14 && rest[2] == '-' && rest[5] == ' ' {
			m, a := digits(rest, 0, 2)
			d, b := digits(rest, 3, 2)
			if of, k := readClock(rest[6:]); a && b && k > 0 && m >= 1 && m <= 12 && d >= 1 && d <= 31 {
				l.level, l.format = level, "vllm.text"
				if !l.hasTime {
					l.hasTime, l.dated, l.noYear, l.local, l.month, l.dayOf = true, true, true, of, m, d
				}
				return l.vllmPlace(strings.TrimLeft(rest[6+k:], " "))
			}
		}
		if l.engineLine {
			l.level = level
			return l.place(rest)
		}
	}
	return s
}

func isLogger(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isWord(s[i]) && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return len(s) < 100
}

// vllmPlace takes off "[file.py:N] ", "file.py:N] " and "file.py:N ".
func (l *lineState) vllmPlace(s string) string {
	word, rest, ok := strings.Cut(s, " ")
	if !ok {
		return s
	}
	code := strings.TrimSuffix(strings.TrimPrefix(word, "["), "]")
	if !isPlace(code) {
		return s
	}
	l.add("code", code)
	return strings.TrimLeft(rest, " ")
}

// isPlace tells whether a word is file.ext:N.
func isPlace(s string) bool {
	i := strings.LastIndexByte(s, ':')
	return i > 2 && len(s) < 200 && isDigits(s[i+1:]) && strings.IndexByte(s[:i], '.') > 0 && strings.IndexByte(s[:i], ':') < 0
}

// place takes off slime's "file.py:N - " and "[file.py:N] ".
func (l *lineState) place(s string) string {
	word, rest, ok := strings.Cut(s, " ")
	if !ok || len(word) < 5 {
		return s
	}
	if isPlace(word) && strings.HasPrefix(rest, "- ") {
		l.add("code", word)
		return rest[2:]
	}
	return s
}

// afterTime reads what stands behind a time without brackets: Dynamo's and the router's
// "LEVEL target: message", Python logging's "[ -] LEVEL [ -] message" and "name - LEVEL - message".
func (l *lineState) afterTime(s string) string {
	if r, ok := strings.CutPrefix(s, "(Worker"); ok && l.actor == "" && strings.Contains(r, "pid=") {
		s = l.ray(s) // vLLM behind a collector's time
	}
	s = strings.TrimPrefix(s, "- ")
	level, n := readLevel(s)
	if n == 0 {
		if name, rest, ok := strings.Cut(s, " - "); ok && isLogger(name) {
			if lv, k := readLevel(rest); k > 0 {
				l.add("logger", name)
				l.level, l.format = lv, "python.text"
				return strings.TrimPrefix(strings.TrimLeft(rest[k:], " "), "- ")
			}
		}
		return s
	}
	rest := s[n:]
	if strings.HasPrefix(rest, ":") || len(rest) > 8 && rest[0] == ' ' && rest[3] == '-' && rest[6] == ' ' {
		return l.afterStamp(s)
	}
	l.level = level
	rest = strings.TrimLeft(rest, " ")
	if r, ok := strings.CutPrefix(rest, "- "); ok {
		l.format = "python.text"
		return r
	}
	target, msg, ok := strings.Cut(rest, ": ")
	if ok && target != "" && !strings.Contains(target, " ") && len(target) < 200 {
		l.add("target", target)
		switch {
		case strings.HasPrefix(target, "sglang_router_rs") || strings.HasPrefix(target, "smg") || strings.HasPrefix(target, "sgl_model_gateway") || strings.HasPrefix(target, "model_gateway"):
			l.format = "router.text"
		case l.zoned:
			l.format = "dynamo.text"
		default:
			l.format = "rust.text"
		}
		if place, m, ok := strings.Cut(msg, ": "); ok && isPlace(place) {
			l.add("code", place)
			msg = m
		}
		return msg
	}
	if place, m, ok := strings.Cut(rest, " -- "); ok && isPlace(place) {
		l.add("code", place)
		l.format = "ray.text"
		return m
	}
	l.format = "text"
	return l.place(rest)
}
