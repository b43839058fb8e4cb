package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WireVersion is the version of the batch format.
const WireVersion = 1

// RolloutsPath is where batches are posted.
const RolloutsPath = "/api/rollscope/v1/rollouts"

// Kinds of a rollout.
const (
	Train = "train"
	Eval  = "eval"
)

// Header is the first line of a batch.
type Header struct {
	Version   int    `json:"version"`
	Run       string `json:"run"`
	Kind      string `json:"kind"` // Train or Eval
	RolloutID int64  `json:"rollout_id"`
	Part      int    `json:"part"`  // place in the upload, from 0
	Parts     *int   `json:"parts"` // how many there are; nil while not known
	Final     bool   `json:"final"` // the upload's last batch
	BatchID   string `json:"batch_id"`
	Upload    string `json:"upload"` // what batches of one rollout from one sender share; may be ""
	Lost      int64  `json:"lost"`   // samples that the sender dropped before this batch
}

// Batch is what one request carries.
type Batch struct {
	Header
	Samples []json.RawMessage // one JSON object each
}

// Limits bound what [DecodeBatch] reads. Zero fields have the defaults that stand beside them.
type Limits struct {
	Bytes     int64 // of the body after decompression; 128 MiB
	LineBytes int64 // of one line; 64 MiB
	Samples   int   // 65,536
}

// ErrTooLarge is wrapped by the errors of bodies beyond a limit.
var ErrTooLarge = errors.New("too large")

// LineError is an error of one line of a batch.
type LineError struct {
	Line int // from 1, the header's
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("trace: batch, line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// maxPart bounds the numbers of parts.
const maxPart = 1_000_000

// boundedReader fails after n bytes.
type boundedReader struct {
	r     io.Reader
	n     int64
	limit int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.n <= 0 {
		var one [1]byte
		if n, err := b.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("more than %d bytes: %w: send smaller batches", b.limit, ErrTooLarge)
	}
	if int64(len(p)) > b.n {
		p = p[:b.n]
	}
	n, err := b.r.Read(p)
	b.n -= int64(n)
	return n, err
}

// DecodeBatch reads the body of a request, compressed or not, as FORMAT.md describes it. A batch is
// taken as a whole or not at all: errors are [*LineError] and wrap what r returned, [ErrTooLarge] or
// the reason.
func DecodeBatch(r io.Reader, limits Limits) (Batch, error) {
	if limits.Bytes <= 0 {
		limits.Bytes = 128 << 20
	}
	if limits.LineBytes <= 0 {
		limits.LineBytes = 64 << 20
	}
	if limits.Samples <= 0 {
		limits.Samples = 1 << 16
	}
	var b Batch
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return b, &LineError{1, fmt.Errorf("gzip: %w", err)}
		}
		in = bufio.NewReaderSize(&boundedReader{z, limits.Bytes, limits.Bytes}, 1<<16)
	} else {
		in = bufio.NewReaderSize(&boundedReader{in, limits.Bytes, limits.Bytes}, 1<<16)
	}
	header := false
	for line := 1; ; line++ {
		text, err := readLine(in, limits.LineBytes)
		if err != nil && err != io.EOF {
			return Batch{}, &LineError{line, err}
		}
		text = bytes.TrimSpace(text)
		if len(text) > 0 {
			var bad error
			switch {
			case !header:
				header = true
				b.Header, bad = decodeHeader(text)
			case len(b.Samples) >= limits.Samples:
				bad = fmt.Errorf("more than %d samples: %w: send smaller batches", limits.Samples, ErrTooLarge)
			case text[0] != '{':
				bad = fmt.Errorf("a sample is a JSON object, not %.20q", text)
			case !json.Valid(text):
				bad = invalid(text)
			default:
				b.Samples = append(b.Samples, bytes.Clone(text))
			}
			if bad != nil {
				return Batch{}, &LineError{line, bad}
			}
		}
		if err == io.EOF {
			break
		}
	}
	if !header {
		return b, &LineError{1, errors.New("the body is empty: its first line is the header")}
	}
	return b, nil
}

// invalid says what is wrong with a text that is no JSON.
func invalid(text []byte) error {
	var raw json.RawMessage
	err := json.Unmarshal(text, &raw)
	var at *json.SyntaxError
	if errors.As(err, &at) {
		return fmt.Errorf("not JSON at byte %d: %w", at.Offset, err)
	}
	return fmt.Errorf("not JSON: %w", err)
}

// readLine reads up to the next line feed or the end, which comes with io.EOF.
func readLine(in *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if int64(len(line)+len(part)) > limit {
			return nil, fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
		}
		if err == bufio.ErrBufferFull {
			line = append(line, part...)
			continue
		}
		if line == nil {
			return part, err // valid until the next read
		}
		return append(line, part...), err
	}
}

func decodeHeader(text []byte) (Header, error) {
	var h struct {
		Header
		RolloutID *int64 `json:"rollout_id"`
		Version   *int   `json:"version"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return Header{}, fmt.Errorf("header: %q is %s", strings.TrimPrefix(wrong.Field, "Header."), wrong.Value)
		}
		return Header{}, fmt.Errorf("header: %w", err)
	}
	out := h.Header
	out.Version = WireVersion
	bad := func(format string, args ...any) (Header, error) {
		return Header{}, fmt.Errorf("header: "+format, args...)
	}
	switch {
	case h.Version != nil && *h.Version != WireVersion:
		return bad("version %d: this server knows version %d", *h.Version, WireVersion)
	case out.Run == "" || len(out.Run) > 256 || strings.ContainsFunc(out.Run, unicode.IsControl) || !utf8.ValidString(out.Run):
		return bad("run %.40q: it is 1 to 256 bytes without control characters", out.Run)
	case out.Kind != Train && out.Kind != Eval:
		return bad("kind %.40q: it is train or eval", out.Kind)
	case h.RolloutID == nil:
		return bad("no rollout_id")
	case out.Part < 0 || out.Part > maxPart:
		return bad("part %d: it is 0 to %d", out.Part, maxPart)
	case out.Parts != nil && *out.Parts > maxPart+1:
		return bad("%d parts: at most %d", *out.Parts, maxPart+1)
	case out.Parts != nil && *out.Parts <= out.Part:
		return bad("part %d of %d: parts count from 0", out.Part, *out.Parts)
	case out.Final && out.Parts != nil && *out.Parts != out.Part+1:
		return bad("part %d of %d is not the final one", out.Part, *out.Parts)
	case out.BatchID == "" || len(out.BatchID) > 128:
		return bad("batch_id %.40q: it is 1 to 128 bytes", out.BatchID)
	case len(out.Upload) > 128:
		return bad("upload %.40q: it is at most 128 bytes", out.Upload)
	case out.Lost < 0:
		return bad("lost %d is negative", out.Lost)
	}
	out.RolloutID = *h.RolloutID
	return out, nil
}

// Missing tells what is still to come of one upload: final says whether its last batch is there,
// missing how many of the parts before that (or before the latest one) are not.
func Missing(batches []Batch) (missing int, final bool) {
	have := make(map[int]bool, len(batches))
	last := -1
	for _, b := range batches {
		have[b.Part] = true
		last = max(last, b.Part)
		if b.Parts != nil {
			last = max(last, *b.Parts-1)
		}
		final = final || b.Final
	}
	return last + 1 - len(have), final
}
