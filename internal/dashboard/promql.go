package dashboard

import (
	"fmt"
	"strings"
)

// The expressions of panels that no signal fits: breakdowns by a label of the program's own. Each is
// idle-safe (no sample instead of NaN) and adds buckets, never percentiles. metric may carry matchers:
// `x{mode="decode"}`.

// speed is events per second: sum by (labels) (rate(metric[5m])).
func speed(metric string, by ...string) string {
	return sum(by) + fmt.Sprintf("(rate(%s[5m]))", metric)
}

// added is a level added over series.
func added(metric string, by ...string) string { return sum(by) + "(" + metric + ")" }

// highest is the highest level.
func highest(metric string, by ...string) string {
	if len(by) == 0 {
		return "max(" + metric + ")"
	}
	return fmt.Sprintf("max by (%s) (%s)", strings.Join(by, ", "), metric)
}

// sum is the head of a sum.
func sum(by []string) string {
	if len(by) == 0 {
		return "sum"
	}
	return fmt.Sprintf("sum by (%s) ", strings.Join(by, ", "))
}

// over is a share or a mean that has no sample while the denominator is 0.
func over(num, den string) string { return fmt.Sprintf("%s / (%s > 0)", num, den) }

// mean is the mean of a histogram or summary family.
func mean(family string, by ...string) string {
	return over(speed(suffixed(family, "_sum"), by...), speed(suffixed(family, "_count"), by...))
}

// percentile is a percentile of a histogram family, without a sample while there are no events.
func percentile(q float64, family string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s) >= 0", q, speed(suffixed(family, "_bucket"), append([]string{"le"}, by...)...))
}

// suffixed puts a suffix on the name and leaves the matchers where they are.
func suffixed(metric, suffix string) string {
	name, match, found := strings.Cut(metric, "{")
	if !found {
		return name + suffix
	}
	return name + suffix + "{" + match
}

// worker takes host:port out of a router's worker_addr.
const worker = `"instance", "$2", "worker_addr", "([a-z]+://)?([^/@]+).*"`

// once counts what every rank of an engine and perhaps a router too says about it one time: the largest
// of what is said about a data-parallel rank, from the engine itself where that is scraped, else from
// the router. f is the vector to count with %s for its matchers, keep the labels whose values are parts.
func once(f func(match string) string, keep ...string) string {
	labels := strings.Join(append([]string{"instance", "dp_rank"}, keep...), ", ")
	return fmt.Sprintf(`max by (%s) (%s) or on (instance) max by (%s) (label_replace(%s, %s))`,
		labels, f(`worker_addr=""`), labels, f(`worker_addr!=""`), worker)
}

// parts is events per second of a scheduler's counter by labels of its own, each engine counted once.
func parts(metric string, by ...string) string {
	return sum(by) + "(" + once(func(match string) string {
		return fmt.Sprintf("rate(%s[5m])", matched(metric, match))
	}, by...) + ")"
}

// matched adds matchers to a selector.
func matched(metric, match string) string {
	if name, rest, found := strings.Cut(metric, "{"); found {
		return name + "{" + match + "," + rest
	}
	return metric + "{" + match + "}"
}
