// Command gents writes the TypeScript types of the HTTP API from the Go files that define them.
// Its one entry point is [Generate]; run it as `go run ./tools/gents` from the top of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// The sources and the one result, relative to the top of the repository.
var sources = []string{"internal/api/types.go", "internal/api/types_events.go", "internal/api/types_passes.go"}

const target = "web/src/api/types.ts"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gents:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := generateFrom("")
	if err != nil {
		return fmt.Errorf("%w (run it from the top of the repository)", err)
	}
	return os.WriteFile(target, out, 0o644)
}

// generateFrom reads the sources below a directory.
func generateFrom(top string) ([]byte, error) {
	var list []Source
	for _, name := range sources {
		code, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			return nil, err
		}
		list = append(list, Source{name, code})
	}
	return Generate(list...)
}
