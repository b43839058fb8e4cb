package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/signal"
)

func addExplain(a *kingpin.Application, e *env) {
	var name string
	cmd := a.Command("explain", "What a metric or signal means, its unit, its traps, and what to use instead.").HelpLong(`
  rollscope explain sglang:cache_hit_rate
  rollscope explain ttft
`)
	cmd.Arg("name", "Metric in any spelling, or id of a signal.").Required().StringVar(&name)
	cmd.Action(func(*kingpin.ParseContext) error {
		text, ok := signal.Explain(signal.Default(), name)
		fmt.Fprintln(e.out, strings.TrimRight(text, "\n"))
		if !ok {
			return &exitError{exitNo, nil} // text says what is near
		}
		return nil
	})
}
