// Command rollscope records what LLM serving engines and RL rollouts do, keeps it after the job ends,
// and explains it. Each command stands in a file of its own; see run.go for how they are put together.
package main

import (
	"os"

	"github.com/rollscope/rollscope/internal/otlp"
)

// version is set by the linker (-X main.version).
var version = "devel"

func main() {
	otlp.RegisterCompressors() // gRPC knows compressions of the whole process only
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
