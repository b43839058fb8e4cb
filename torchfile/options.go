package torchfile

// Limits bounds what a file may make the reader do. The zero value of a field means its default.
type Limits struct {
	// MaxMemory is the number of bytes that decoding one [Doc] may hold on the heap: nodes, memo and
	// stack. The mapped file does not count. Default 2 GiB.
	MaxMemory int64
	// MaxInflate is the number of bytes that all records of a file which are not simply mapped may
	// take: what compressed ones inflate to (torch writes none; re-zipped dumps have them), and what is
	// read of a file that cannot be mapped. They are kept until Close. Default 4 GiB.
	MaxInflate int64
	// MaxOps is the number of pickle opcodes executed for one [Doc], re-decoding of deferred values
	// included; an element of a packed list of numbers counts as one. Default 16 per byte of the
	// pickle plus one million.
	MaxOps int64
	// MaxMemo is the number of memo slots. Default 1<<27.
	MaxMemo int
	// MaxDepth is how deep views (JSON, PyStr, PyRepr) follow nested values. Default 1000.
	// Decoding itself does not recurse.
	MaxDepth int
	// MaxIntBytes is the size of the largest integer that is converted to digits or a [big.Int].
	// Default 64 KiB (about 157,000 digits).
	MaxIntBytes int
}

func (l Limits) withDefaults(pickleLen int) Limits {
	if l.MaxMemory <= 0 {
		l.MaxMemory = 2 << 30
	}
	if l.MaxInflate <= 0 {
		l.MaxInflate = 4 << 30
	}
	if l.MaxOps <= 0 {
		l.MaxOps = 16*int64(pickleLen) + 1_000_000
	}
	if l.MaxMemo <= 0 {
		l.MaxMemo = 1 << 27
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 1000
	}
	if l.MaxIntBytes <= 0 {
		l.MaxIntBytes = 64 << 10
	}
	return l
}

// Options are the choices at opening a file. The zero value is good.
type Options struct {
	// Limits bounds memory and work.
	Limits Limits
	// Salvage opens a zip file whose central directory is missing (cut, or still being written) by
	// walking its records from the start, and lets Load and Scan return what lies before the cut
	// together with the error.
	Salvage bool
	// NoMap reads the file by ReadAt instead of mapping it; the pickle is then held in memory.
	NoMap bool
	// Verify checks the CRC-32 of the pickle record when it is first read. Records that are
	// compressed are always checked.
	Verify bool
	// Classes tells the reader about classes that the file refers to by name, so that views can show
	// both halves of an enum member or the field names of a namedtuple. Nothing depends on it.
	Classes map[string]ClassHint
}

// ClassHint is what a caller knows of a Python class, keyed by "module.QualName" in
// [Options].Classes. A pickle stores an enum member by name (Python 3.11) or by value (3.10, 3.12),
// and a namedtuple without the names of its fields.
type ClassHint struct {
	// Enum maps member names to their values: nil, bool, int, float64 or string.
	Enum map[string]any
	// Fields are the names of a namedtuple's fields, or of a slotted dataclass's.
	Fields []string
}
