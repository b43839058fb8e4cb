package timeline

import (
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// tokenLedger finds the tokens that aborted attempts generated in vain.
//
// A request's tokens stand at places of the sample's context: those from PromptTokens to PromptTokens +
// CompletionTokens. When a request was aborted (finish_reason "abort", or no end at all), or the
// attempt changes, the next request shows by its prompt what was kept: what stood behind its length is
// thrown away. A partial rollout that goes on where it stopped throws nothing away; one that begins
// anew throws all away. What a request does within an attempt (an agent that shortens its history)
// is no waste.
type tokenLedger struct {
	alive []aliveTokens // what is in the context, by its place in it
	gone  []bool
	// Wasted counts the tokens thrown away, Unknown the aborted requests whose tokens or whose
	// successor's prompt the dump does not tell.
	wasted, unknown int64
}

// aliveTokens are tokens of a request at the places from..to of the context.
type aliveTokens struct {
	request  int32
	from, to int64
}

// aborted tells whether a request ended because somebody stopped it.
func aborted(r *request.Request) bool {
	return r.SpanEnd < 0 || strings.HasPrefix(r.FinishReason, "abort") || strings.HasPrefix(r.FinishReason, "cancel")
}

// lost returns, per request, whether all it generated was thrown away; nil when nothing was. It sets
// wasted and unknown. The result is valid until the next call.
func (l *tokenLedger) lost(reqs []request.Request) []bool {
	l.wasted, l.unknown = 0, 0
	l.alive = l.alive[:0]
	if len(reqs) < 2 {
		return nil
	}
	l.gone = resize(l.gone, len(reqs))
	clear(l.gone)
	any := false
	for i := range reqs {
		r := &reqs[i]
		if i > 0 && (aborted(&reqs[i-1]) || reqs[i-1].Attempt != r.Attempt) {
			kept, ok := r.PromptTokens.Known()
			if ok {
				any = l.cut(int64(max(0, min(kept, 1e15)))) || any
			} else if len(l.alive) > 0 {
				l.unknown += int64(len(l.alive))
				l.alive = l.alive[:0]
			}
		}
		p, hasPrompt := r.PromptTokens.Known()
		n, hasTokens := r.CompletionTokens.Known()
		switch {
		case hasPrompt && hasTokens && n > 0:
			from := int64(min(max(p, 0), 1e15))
			l.alive = append(l.alive, aliveTokens{int32(i), from, from + int64(min(n, 1e15))})
		case !hasTokens && aborted(r):
			l.unknown++
		}
	}
	if !any {
		return nil
	}
	return l.gone
}

// cut throws away what stands behind the kept tokens, from the end of the context until something is
// kept, and tells whether a request lost all.
func (l *tokenLedger) cut(kept int64) (any bool) {
	for len(l.alive) > 0 {
		a := &l.alive[len(l.alive)-1]
		if a.to <= kept {
			break
		}
		l.wasted += a.to - max(a.from, kept)
		if a.from < kept {
			a.to = kept
			break
		}
		l.gone[a.request] = true
		any = true
		l.alive = l.alive[:len(l.alive)-1]
	}
	return any
}
