package fpm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Socket is whether an engine's socket, or the subject of the event plane, is there.
type Socket string

// States of a socket.
const (
	SocketUnknown Socket = ""
	SocketMissing Socket = "missing" // no file, connection refused, or no publisher in the discovery
	SocketOpen    Socket = "open"    // connected
)

// Evidence is what is known about a source from outside of its stream, over one window of time.
type Evidence struct {
	Up       time.Duration // since when the source has been listening
	Window   time.Duration // what the counts below are of; the last minute or so
	Messages uint64        // that could be read
	Passes   uint64        // of those, passes
	Refused  uint64        // that could not
	Reason   Reason        // why most of those could not; the word of this package or of the source
	Socket   Socket
	// Requests is how many requests the engine finished or began in the window, by its own metrics or its
	// frontend's; negative when that is unknown.
	Requests float64
	Runtime  string // the image or package and its version, "sglang 0.5.11"; "" unknown
}

// Flow is what a source's stream is, all in all.
type Flow string

// Flows of a source.
const (
	Receiving      Flow = "receiving"
	Starting       Flow = "starting"                          // up for too short a time to tell
	Waiting        Flow = "waiting (engine idle)"             // nothing comes, and there is nothing to tell
	Unheard        Flow = "nothing received"                  // nothing comes, and whether the engine works is unknown
	Blind          Flow = "no payload while engine is busy"   // nothing comes, and there should
	HeartbeatsOnly Flow = "heartbeats while engine is busy"   // it lives, and tells of no pass
	Undecodable    Flow = "messages that cannot be decoded"   // something comes, and is not understood
	PartlyReadable Flow = "receiving, some cannot be decoded" // some is
)

// Cause is why, as a word that does not change.
type Cause string

// Causes of a flow that is not what it should be.
const (
	NoCause        Cause = ""
	NoSocket       Cause = "socket_missing"
	SilentSocket   Cause = "socket_silent"
	CannotDecode   Cause = "undecodable"
	RuntimeSilent  Cause = "runtime_does_not_emit"
	NoDeviceTimer  Cause = "no_pass_times"
	ActivityHidden Cause = "engine_activity_unknown"
)

// Since returns the evidence that is in what came of a source between two times: the counts, and why most
// of what was refused was. The rest is for the caller to add.
func (s SourceStatus) Since(earlier SourceStatus) Evidence {
	e := Evidence{Messages: s.Messages - min(earlier.Messages, s.Messages), Passes: s.Passes - min(earlier.Passes, s.Passes), Requests: -1}
	most := uint64(0)
	for reason, n := range s.Refused {
		if reason == TooMany { // it was read
			continue
		}
		n -= min(earlier.Refused[reason], n)
		e.Refused += n
		if n > most || n == most && n > 0 && reason < e.Reason {
			e.Reason, most = reason, n
		}
	}
	return e
}

// Verdict is what a source's stream is, why, and what to do.
type Verdict struct {
	Flow  Flow
	Cause Cause
	Alarm bool   // somebody is blind, or misses a tenth of what is said
	Why   string // in words, with the numbers
	Do    string // what to do, "" when there is nothing
}

// settle is how long nothing may come before it is said that nothing comes. It leaves time for a busy
// engine to be told as blind within 30 s even when its metrics are scraped every 15 s.
const settle = 10 * time.Second

// Judge says what a source's stream is. It needs evidence from outside, since a stream that is silent
// says nothing of why.
func Judge(e Evidence) Verdict {
	busy := e.Requests > 0
	during := fmt.Sprintf("in %s", short(max(e.Window, 0)))
	switch {
	case e.Refused > 0 && e.Messages == 0:
		return Verdict{Undecodable, CannotDecode, true,
			fmt.Sprintf("%d messages came %s and none could be decoded, most for the reason %s", e.Refused, during, e.Reason), remedy(e.Reason)}
	case e.Refused > 0:
		return Verdict{PartlyReadable, CannotDecode, e.Refused >= e.Messages/9,
			fmt.Sprintf("%d of %d messages %s could not be decoded, most for the reason %s", e.Refused, e.Refused+e.Messages, during, e.Reason), remedy(e.Reason)}
	case e.Passes > 0:
		return Verdict{Flow: Receiving, Why: fmt.Sprintf("%d passes and %d heartbeats %s", e.Passes, e.Messages-min(e.Passes, e.Messages), during)}
	case e.Messages > 0 && busy && e.Up >= settle:
		return Verdict{HeartbeatsOnly, NoDeviceTimer, true,
			fmt.Sprintf("%d heartbeats and no pass %s, in which the engine had %g requests", e.Messages, during, e.Requests),
			"passes are timed by CUDA events and not sent without them: on another device nothing else comes; on CUDA look for device_timer=True in the engine's log"}
	case e.Messages > 0:
		return Verdict{Flow: Receiving, Why: fmt.Sprintf("%d heartbeats %s: the engine is idle", e.Messages, during)}
	case e.Up < settle:
		return Verdict{Flow: Starting, Why: fmt.Sprintf("listening for %s, nothing came yet", short(e.Up))}
	case e.Requests == 0:
		v := Verdict{Flow: Waiting, Why: fmt.Sprintf("nothing came %s, in which the engine had no request either", during)}
		if e.Socket == SocketMissing {
			v.Cause, v.Why = NoSocket, v.Why+"; its socket is not there"
		}
		return v
	}
	v := Verdict{Flow: Blind, Alarm: true, Why: fmt.Sprintf("listening for %s and nothing came %s, in which the engine had %g requests", short(e.Up), during, e.Requests)}
	if !busy {
		v = Verdict{Flow: Unheard, Why: fmt.Sprintf("listening for %s and nothing came %s; whether the engine works is unknown", short(e.Up), during)}
	}
	why, instead, mute := doesNotEmit(e.Runtime)
	switch {
	case mute:
		v.Cause, v.Alarm, v.Do = RuntimeSilent, true, instead
		v.Why += "; " + why
	case e.Socket == SocketMissing:
		v.Cause, v.Do = NoSocket, "the engine binds it only with --enable-forward-pass-metrics (SGLang) or the instrumented scheduler (vLLM); the name ends in .RANK: compare with the line \"ZMQ PUB bound on\" of its log"
		v.Why += "; its socket is not there"
	case e.Socket == SocketOpen:
		v.Cause, v.Do = SilentSocket, "the socket is there and silent: another process may hold its name, only one rank of a tensor-parallel group emits, and an engine of several nodes is heard on each node alone"
		v.Why += "; its socket is open"
	case !busy:
		v.Cause, v.Do = ActivityHidden, "scrape the engine or its frontend, so that silence can be told from idleness"
	default:
		v.Cause, v.Do = SilentSocket, "find out whether its socket is there: rollscope could not tell"
	}
	return v
}

// remedy says what to do about messages that are refused.
func remedy(r Reason) string {
	switch r {
	case Versioned:
		return "the engine speaks a newer version of the schema: update rollscope"
	case Array:
		return "the emitter writes arrays, which Dynamo's own decoder refuses too; set encoding: positional for this source if that is meant"
	case "bad_frames", "bad_envelope":
		return "what is bound there is another kind of socket than the source is configured as: an engine's messages have 3 frames, the event plane's 4"
	case Empty, Truncated, Malformed, NotAMap, Trailing:
		return "what arrives is no forward-pass message: look at what is bound to the address"
	}
	return "the emitter's schema differs from Dynamo's: see the field that the last error names"
}

// mute are runtimes that are known to have no emitter though the relay before them starts.
var mute = []struct {
	names    []string
	versions []string
	why      string
	instead  string
}{
	{
		[]string{"sglang-runtime"},
		[]string{"1.2.0"},
		"sglang-runtime 1.2.0 has no emitter of forward-pass metrics, though its relay starts",
		"use a later runtime image, or vLLM or TensorRT-LLM (without attention data parallelism); until then scale by SGLang's own metrics",
	},
	{
		[]string{"sglang"},
		[]string{"0.5.11"},
		"SGLang 0.5.11 has no emitter of forward-pass metrics",
		"update SGLang, or use vLLM or TensorRT-LLM (without attention data parallelism); until then scale by SGLang's own metrics",
	},
}

// doesNotEmit looks a runtime up.
func doesNotEmit(runtime string) (why, instead string, ok bool) {
	words := strings.FieldsFunc(strings.ToLower(runtime), func(r rune) bool {
		return r == ' ' || r == ':' || r == '/' || r == '@' || r == '='
	})
	for _, m := range mute {
		for i := 0; i+1 < len(words); i++ {
			version, _, _ := strings.Cut(strings.TrimPrefix(words[i+1], "v"), "-") // 1.2.0-cuda13
			if slices.Contains(m.names, words[i]) && slices.Contains(m.versions, version) {
				return m.why, m.instead, true
			}
		}
	}
	return "", "", false
}
