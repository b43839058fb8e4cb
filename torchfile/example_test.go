package torchfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/rollscope/rollscope/torchfile"
)

// dump is a small file for the examples.
func dump() *torchfile.File {
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, &torchfile.WriterOptions{Root: "rollout_7"})
	w.BeginDict()
	w.Key("rollout_id")
	w.Int(7)
	w.Key("samples")
	w.BeginList()
	for i := range 3 {
		w.BeginDict()
		w.Key("index")
		w.Int(int64(i))
		w.Key("tokens")
		w.Ints([]int64{101, 2040, 128009})
		w.Key("status")
		w.Shared("completed")
		w.EndDict()
	}
	w.EndList()
	w.EndDict()
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return f
}

func ExampleOpen() {
	f, err := torchfile.Open("testdata/dumps/d01_rollout_7.pt", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	s := d.Root().Get("samples").Index(0)
	fmt.Println(s.Kind(), "of class", s.Class())
	status, _ := s.Attr("status").Enum()
	fmt.Println("status", status.Value.PyRepr())
	verdict := s.Attr("metadata").Get("verdict")
	fmt.Println(verdict.Class(), "score", verdict.Attr("score").PyStr())
	// Output:
	// object of class slime.utils.types.Sample
	// status 'completed'
	// acme_rewards.v2.Verdict score 0.5
}

func ExampleFile_Scan() {
	f := dump()
	defer f.Close()
	var tokens []int64
	_, err := f.Scan(torchfile.ScanOptions{Path: []string{"samples"}, Fields: []string{"index", "status"}},
		func(s torchfile.Element) error {
			fmt.Println(s.Get("index").PyStr(), s.Get("status").Str(), "tokens deferred:", s.Get("tokens").Deferred())
			tokens, _ = s.Get("tokens").Ints(tokens[:0]) // decoded now
			fmt.Println(tokens)
			if s.Ordinal == 1 {
				return torchfile.Stop
			}
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0 completed tokens deferred: true
	// [101 2040 128009]
	// 1 completed tokens deferred: true
	// [101 2040 128009]
}

func ExampleFile_Load_salvage() {
	const path = "testdata/dumps/d03_rollout_8.pt" // its job was killed while it saved
	_, err := torchfile.Open(path, nil)
	fmt.Println(errors.Is(err, torchfile.ErrIncomplete))

	f, err := torchfile.Open(path, &torchfile.Options{Salvage: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	fmt.Println(err)
	fmt.Println("rollout", d.Root().Get("rollout_id").PyStr(), "has", d.Root().Get("samples").Len(), "samples or parts of one")
	// Output:
	// true
	// testdata/dumps/d03_rollout_8.pt: archive/data.pkl: the pickle ends within a memo reference: still being written or cut (at byte 5222)
	// rollout 8 has 13 samples or parts of one
}

func ExampleValue_Tensor() {
	f, err := torchfile.Open("testdata/dumps/f15_protocol2.pt", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	t, err := d.Root().Get("samples").Index(0).Get("extra").Get("zoo").Get("view_col").Tensor()
	if err != nil {
		log.Fatal(err)
	}
	x, err := t.Float64s(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.DType, t.Shape, t.Stride, x)
	// Output: torch.float32 [4] [6] [2 8 14 20]
}

func ExampleWriteJSON() {
	f := dump()
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := torchfile.WriteJSON(os.Stdout, d.Root().Get("samples").Index(2), torchfile.JSONOptions{}); err != nil {
		log.Fatal(err)
	}
	// Output: {"index":2,"tokens":[101,2040,128009],"status":"completed"}
}

func ExampleNewWriter() {
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, &torchfile.WriterOptions{Root: "rollout_12"})
	w.BeginDict()
	w.Key("rollout_id")
	w.Int(12)
	w.Key("rollout_log_probs")
	w.Floats([]float64{-0.5, -0.25})
	w.Key("routed_experts")
	w.Tensor(torchfile.TensorData{DType: torchfile.Int16, Shape: []int64{2}, Data: []byte{1, 0, 2, 0}})
	w.EndDict()
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range f.Records() {
		fmt.Println(r.Name, r.Size)
	}
	// Output:
	// rollout_12/data.pkl 242
	// rollout_12/data/0 4
	// rollout_12/byteorder 6
	// rollout_12/version 2
}
