// Package tailsample decides which traces are kept once it is known how they ended: whole traces or none,
// all that failed or were slow, and a consistent share of the rest. Its entry point is [New]; [Parse]
// reads a policy in our own short form or in that of the OpenTelemetry Collector's tail_sampling.
//
// A trace waits until its request is finished. Its spans are meanwhile held as the bytes they came in:
// first as they are, in a nursery, since most requests end soon; those that stay longer are compressed a
// trace at a time against a dictionary of recent spans. Nothing is decoded before the decision.
//
// The package has no clock: now is a parameter everywhere, ns since 1970 (UTC), and never runs backwards
// in here. A [Sampler] belongs to one goroutine.
package tailsample
