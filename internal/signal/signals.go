package signal

import "github.com/rollscope/rollscope/internal/engine"

// builtinSignals lists every signal, the golden five first, then by group.
func builtinSignals() []Signal {
	var all []Signal
	for _, group := range []func() []Signal{
		goldenSignals, requestSignals, pdSignals, cacheSignals, schedulerSignals, gatewaySignals, dynamoSignals, gpuSignals,
	} {
		all = append(all, group()...)
	}
	return all
}

// The caveats that stand beside numbers of lesser sources.
const (
	caveatAtFinish  = "counted at finish, moves in steps"
	caveatLastBatch = "last batch only"
	caveatGauge     = "the engine's own gauge of its last decode report; stale for up to 30 s when it idles"
	caveatTP        = "counted by every TP rank: with TP the number is too high by that factor"
	caveatLastOne   = "of the last request only"
)

// leader is a term of a metric that TP and PP ranks repeat and DP ranks share out.
func leader(metric, match string, parts ...string) Vec {
	return Vec{{Metric: metric, Match: match, Ranks: RankLeader, Parts: parts}}
}

// whole is a term of a metric without rank labels.
func whole(metric, match string) Vec { return Vec{{Metric: metric, Match: match}} }

// total selects the series of a scheduler gauge that is the total over request priorities.
const total = `priority=""`

// The roles that signals are about.
func generating() []engine.Role { return []engine.Role{engine.Unified, engine.Decode} }
func prefilling() []engine.Role { return []engine.Role{engine.Unified, engine.Prefill} }
func prefill() []engine.Role    { return []engine.Role{engine.Prefill} }
func decode() []engine.Role     { return []engine.Role{engine.Decode} }
func split() []engine.Role      { return []engine.Role{engine.Prefill, engine.Decode} }
func frontends() []engine.Role  { return []engine.Role{engine.Frontend} }
func routers() []engine.Role    { return []engine.Role{engine.RoleRouter} }
