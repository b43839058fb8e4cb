// Package planner turns forward passes into capacity: what an engine's next request would wait, how many
// requests a second it carries within a promise, how many replicas a demand needs, and what NVIDIA Dynamo's
// planner would do about it and why. Its entry point is [New]; [Parse] reads Dynamo's own settings.
//
// It advises and never scales. The formulas, their units and their guards are those of Dynamo's regression
// planner (docs/planner.md has them with their source); what is ours beside them is said to be ours.
//
// The package has no clock and does no I/O. A [Planner] and a [Model] belong to one goroutine.
package planner
