package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The committed TypeScript is what the generator writes for the committed Go.
func TestCommittedTypesAreCurrent(t *testing.T) {
	top := filepath.Join("..", "..")
	want, err := generateFrom(top)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(top, target))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s is stale: run `make generate` (go run ./tools/gents)", target)
	}
}

func TestGenerate(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"union", "package p\n// Kind of x.\ntype Kind string\nconst (\n\tA Kind = \"a\"\n\tB Kind = \"b\"\n)\n",
			"/** Kind of x. */\nexport type Kind = \"a\" | \"b\";\n"},
		{"plain string", "package p\ntype ID string\n", "export type ID = string;\n"},
		{"pointer", "package p\ntype T struct {\n\tV *float64 `json:\"v\"`\n}\n", "export interface T {\n  v: number | null;\n}\n"},
		{"pointer left out", "package p\ntype T struct {\n\tV *float64 `json:\"v,omitempty\"` // why\n}\n", "  /** why */\n  v?: number;\n"},
		{"slice of pointers", "package p\ntype T struct {\n\tV []*float64 `json:\"v\"`\n}\n", "  v: (number | null)[];\n"},
		{"map over a union", "package p\ntype K string\nconst A K = \"a\"\ntype T struct {\n\tV map[K]int `json:\"v\"`\n}\n", "  v: Partial<Record<K, number>>;\n"},
		{"generic", "package p\ntype E[T any] struct {\n\tD T `json:\"d\"`\n\tL []E[T] `json:\"l\"`\n}\n", "export interface E<T> {\n  d: T;\n  l: E<T>[];\n}\n"},
		{"hidden field", "package p\ntype T struct {\n\tV int `json:\"-\"`\n}\n", "export interface T {\n}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Generate(Source{"p.go", []byte(tt.src)})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), tt.want) {
				t.Errorf("got\n%s\nwant it to hold\n%s", got, tt.want)
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	for _, src := range []string{
		"package p\ntype T struct {\n\tV int\n}\n",
		"package p\ntype T struct {\n\tio.Reader `json:\"r\"`\n}\n",
		"package p\ntype T struct {\n\tV chan int `json:\"v\"`\n}\n",
	} {
		_, err := Generate(Source{"p.go", []byte(src)})
		if err == nil || !strings.Contains(err.Error(), "p.go:3") {
			t.Errorf("%q: error %v, want one that names p.go:3", src, err)
		}
	}
}
