package torchfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/big"
	"sort"
	"strconv"
	"unicode/utf8"
)

// WriterOptions are the choices of [NewWriter].
type WriterOptions struct {
	// Root is the folder that all records are in. torch uses the file's name without its extension.
	// Default "archive".
	Root string
}

// Writer writes one object as a file that torch.load reads: a zip container with a pickle of
// protocol 2, laid out as torch.save does it. It streams: what it holds is the table of shared
// strings and the tensors that were given to it, which come after the pickle.
//
// Values are written in the order of a depth-first walk: BeginDict, a key, its value, the next key,
// ..., EndDict. Errors are kept; Close returns the first one. A Writer is not safe for concurrent use.
type Writer struct {
	zw    zipWriter
	err   error
	stack []writerFrame
	memo  int
	keys  map[string]int // shared strings and classes: memo slots
	buf   []byte
	data  []storageData
	done  bool // the root was written
}

type writerFrame struct {
	kind byte // ']' list, '}' dict, '(' tuple
	n    int  // values so far
}

type storageData struct {
	dtype DType
	count int64
	bytes []byte
	write func(io.Writer) error
}

// batchSize is how many elements CPython appends at once.
const batchSize = 1000

// maxShared bounds the table of shared strings.
const maxShared = 1 << 16

// NewWriter begins a file. The caller closes w after Close.
func NewWriter(w io.Writer, opts *WriterOptions) *Writer {
	root := "archive"
	if opts != nil && opts.Root != "" {
		root = opts.Root
	}
	e := &Writer{zw: zipWriter{w: bufio.NewWriterSize(w, 1<<16), root: root, wideSize: math.MaxUint32, wideStart: math.MaxUint32}, keys: make(map[string]int)}
	e.fail(e.zw.begin("data.pkl"))
	e.raw(opProto, 2)
	return e
}

func (e *Writer) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *Writer) misuse(what string) {
	e.fail(errors.New("torchfile: " + what))
}

func (e *Writer) raw(b ...byte) { e.buf = append(e.buf, b...) }

func (e *Writer) flush() {
	if e.err == nil {
		e.fail(e.zw.write(e.buf))
	}
	e.buf = e.buf[:0]
}

// before makes room for one more value in the open container.
func (e *Writer) before() {
	if len(e.buf) > 1<<14 {
		e.flush()
	}
	if len(e.stack) == 0 {
		if e.done {
			e.misuse("a file holds one value; this is a second one")
		}
		e.done = true
		return
	}
	f := &e.stack[len(e.stack)-1]
	per := batchSize
	closer := byte(opAppends)
	switch f.kind {
	case opMark:
		f.n++
		return
	case opEmptyDict:
		per, closer = 2*batchSize, opSetItems
	}
	switch {
	case f.n == 0:
		e.raw(opMark)
	case f.n%per == 0:
		e.raw(closer, opMark)
	}
	f.n++
}

func (e *Writer) put() {
	if e.memo < 256 {
		e.raw(opBinPut, byte(e.memo))
	} else {
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opLongBinPut), uint32(e.memo))
	}
	e.memo++
}

func (e *Writer) get(slot int) {
	if slot < 256 {
		e.raw(opBinGet, byte(slot))
	} else {
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opLongBinGet), uint32(slot))
	}
}

// None writes None.
func (e *Writer) None() {
	e.before()
	e.raw(opNone)
}

// Bool writes a bool.
func (e *Writer) Bool(b bool) {
	e.before()
	if b {
		e.raw(opNewTrue)
	} else {
		e.raw(opNewFalse)
	}
}

// Int writes an integer.
func (e *Writer) Int(i int64) {
	e.before()
	e.buf = appendInt(e.buf, i)
}

func appendInt(dst []byte, i int64) []byte {
	switch {
	case i >= 0 && i < 1<<8:
		return append(dst, opBinInt1, byte(i))
	case i >= 0 && i < 1<<16:
		return append(dst, opBinInt2, byte(i), byte(i>>8))
	case i >= math.MinInt32 && i <= math.MaxInt32:
		return binary.LittleEndian.AppendUint32(append(dst, opBinInt), uint32(i))
	}
	n := 8
	for n > 1 && (i>>(8*n-9) == 0 || i>>(8*n-9) == -1) {
		n--
	}
	dst = append(dst, opLong1, byte(n))
	for k := range n {
		dst = append(dst, byte(i>>(8*k)))
	}
	return dst
}

// BigInt writes an integer of any size.
func (e *Writer) BigInt(i *big.Int) {
	if i.IsInt64() {
		e.Int(i.Int64())
		return
	}
	e.before()
	n := i.BitLen()/8 + 1
	v := i
	if i.Sign() < 0 {
		v = new(big.Int).Add(i, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	be := v.FillBytes(make([]byte, n))
	if n < 256 {
		e.raw(opLong1, byte(n))
	} else {
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opLong4), uint32(n))
	}
	for k := n - 1; k >= 0; k-- {
		e.raw(be[k])
	}
}

// Float writes a float.
func (e *Writer) Float(f float64) {
	e.before()
	e.buf = binary.BigEndian.AppendUint64(append(e.buf, opBinFloat), math.Float64bits(f))
}

// Str writes a string, which must be UTF-8.
func (e *Writer) Str(s string) {
	e.before()
	e.str(s)
}

func (e *Writer) str(s string) {
	if !utf8.ValidString(s) {
		e.misuse("a string that is not UTF-8")
	}
	if len(s) > math.MaxUint32 {
		e.misuse("a string longer than 4 GiB")
	}
	e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opBinUnicode), uint32(len(s)))
	if len(s) > 1<<14 {
		e.flush()
		if e.err == nil {
			e.fail(e.zw.writeString(s))
		}
	} else {
		e.buf = append(e.buf, s...)
	}
	e.put()
}

// Shared writes a string that was written with Shared before as a reference to it, as Python does
// for a string object that occurs again. Use it for keys and other words of a small vocabulary.
func (e *Writer) Shared(s string) {
	e.before()
	e.shared(s)
}

func (e *Writer) shared(s string) {
	if slot, ok := e.keys["s"+s]; ok {
		e.get(slot)
		return
	}
	if len(e.keys) < maxShared {
		e.keys["s"+s] = e.memo
	}
	e.str(s)
}

// Ref is a string that was written with StrRef.
type Ref int

// StrRef writes a string and returns what [Writer.Again] writes as a reference to it. The Writer
// keeps nothing of it, so there is no bound on how many there are: use it for ids.
func (e *Writer) StrRef(s string) Ref {
	e.before()
	e.str(s)
	return Ref(e.memo - 1)
}

// Again writes a reference to a string that this Writer wrote with StrRef.
func (e *Writer) Again(r Ref) {
	e.before()
	if r < 0 || int(r) >= e.memo {
		e.misuse("a reference to a string that was not written")
		return
	}
	e.get(int(r))
}

// Key writes a dict's key; it is Shared by another name.
func (e *Writer) Key(s string) {
	if f := e.top(); f == nil || f.kind != opEmptyDict || f.n%2 != 0 {
		e.misuse("a key where no key belongs: " + strconv.Quote(s))
	}
	e.Shared(s)
}

func (e *Writer) top() *writerFrame {
	if len(e.stack) == 0 {
		return nil
	}
	return &e.stack[len(e.stack)-1]
}

// global writes a reference to a class or function.
func (e *Writer) global(module, name string) {
	key := "g" + module + "\n" + name
	if slot, ok := e.keys[key]; ok {
		e.get(slot)
		return
	}
	e.keys[key] = e.memo
	e.raw(opGlobal)
	e.buf = append(e.buf, module+"\n"+name+"\n"...)
	e.put()
}

// Bytes writes bytes. Protocol 2 has no opcode for them: they are a call of _codecs.encode.
func (e *Writer) Bytes(b []byte) {
	e.before()
	e.global("_codecs", "encode")
	s := make([]byte, 0, len(b)+len(b)/4)
	for _, c := range b {
		s = utf8.AppendRune(s, rune(c))
	}
	e.str(string(s))
	e.shared("latin1")
	e.raw(opTuple2)
	e.put()
	e.raw(opReduce)
	e.put()
}

// BeginDict opens a dict: keys and values follow, then EndDict.
func (e *Writer) BeginDict() {
	e.before()
	e.raw(opEmptyDict)
	e.put()
	e.stack = append(e.stack, writerFrame{kind: opEmptyDict})
}

// EndDict closes the open dict.
func (e *Writer) EndDict() { e.end(opEmptyDict) }

// BeginList opens a list: its elements follow, then EndList.
func (e *Writer) BeginList() {
	e.before()
	e.raw(opEmptyList)
	e.put()
	e.stack = append(e.stack, writerFrame{kind: opEmptyList})
}

// EndList closes the open list.
func (e *Writer) EndList() { e.end(opEmptyList) }

// BeginTuple opens a tuple: its elements follow, then EndTuple.
func (e *Writer) BeginTuple() {
	e.before()
	e.raw(opMark)
	e.stack = append(e.stack, writerFrame{kind: opMark})
}

// EndTuple closes the open tuple.
func (e *Writer) EndTuple() { e.end(opMark) }

func (e *Writer) end(kind byte) {
	f := e.top()
	if f == nil || f.kind != kind {
		e.misuse("an End without its Begin")
		return
	}
	if kind == opEmptyDict && f.n%2 != 0 {
		e.misuse("a dict that ends after a key")
	}
	switch {
	case kind == opMark:
		e.raw(opTuple)
		e.put()
	case f.n == 0:
	case kind == opEmptyDict:
		e.raw(opSetItems)
	default:
		e.raw(opAppends)
	}
	e.stack = e.stack[:len(e.stack)-1]
}

// Ints writes a list of integers.
func (e *Writer) Ints(v []int64) {
	e.BeginList()
	for _, i := range v {
		e.Int(i)
	}
	e.EndList()
}

// Floats writes a list of floats.
func (e *Writer) Floats(v []float64) {
	e.BeginList()
	for _, f := range v {
		e.Float(f)
	}
	e.EndList()
}

// TensorData is a contiguous tensor to write, on the CPU.
type TensorData struct {
	DType DType // one that has a storage class of its own: not the float8 types nor uint16 to uint64
	Shape []int64
	// Data is the elements' bytes, little-endian, the last dimension fastest. It must not change
	// before Close. When it is nil, Write writes them; it is called during Close.
	Data  []byte
	Write func(io.Writer) error
}

// Tensor writes a tensor.
func (e *Writer) Tensor(t TensorData) {
	e.before()
	n := product(t.Shape)
	if n < 0 || int(t.DType) >= len(dtypes) || dtypes[t.DType].storage == "" {
		e.misuse(fmt.Sprintf("a tensor of type %s and shape %v cannot be written", t.DType, t.Shape))
		return
	}
	if t.Write == nil && int64(len(t.Data)) != n*int64(t.DType.Size()) {
		e.misuse(fmt.Sprintf("a tensor of type %s and shape %v has %d bytes", t.DType, t.Shape, len(t.Data)))
		return
	}
	key := len(e.data)
	e.data = append(e.data, storageData{t.DType, n, t.Data, t.Write})
	e.global("torch._utils", "_rebuild_tensor_v2")
	e.raw(opMark, opMark)
	e.shared("storage")
	e.global("torch", dtypes[t.DType].storage)
	e.str(strconv.Itoa(key))
	e.shared("cpu")
	e.buf = appendInt(e.buf, n)
	e.raw(opTuple)
	e.put()
	e.raw(opBinPersID)
	e.buf = appendInt(e.buf, 0)
	e.dims(t.Shape)
	stride := make([]int64, len(t.Shape))
	s := int64(1)
	for i := len(stride) - 1; i >= 0; i-- {
		stride[i] = s
		s *= max(t.Shape[i], 1)
	}
	e.dims(stride)
	e.raw(opNewFalse)
	e.global("collections", "OrderedDict")
	e.raw(opEmptyTuple, opReduce)
	e.put()
	e.raw(opTuple)
	e.put()
	e.raw(opReduce)
	e.put()
}

func (e *Writer) dims(v []int64) {
	if len(v) == 0 {
		e.raw(opEmptyTuple)
		return
	}
	if len(v) > 3 {
		e.raw(opMark)
	}
	for _, i := range v {
		e.buf = appendInt(e.buf, i)
	}
	if len(v) > 3 {
		e.raw(opTuple)
	} else {
		e.raw(opTuple1 + byte(len(v)-1))
	}
	e.put()
}

// Value writes what it has an opcode for: nil, bool, int, int64, float64, string, []byte, *big.Int,
// []any, []string, []int64, []float64, map[string]any (its keys sorted), TensorData.
func (e *Writer) Value(v any) {
	switch v := v.(type) {
	case nil:
		e.None()
	case bool:
		e.Bool(v)
	case int:
		e.Int(int64(v))
	case int64:
		e.Int(v)
	case float64:
		e.Float(v)
	case string:
		e.Str(v)
	case []byte:
		e.Bytes(v)
	case *big.Int:
		e.BigInt(v)
	case []int64:
		e.Ints(v)
	case []float64:
		e.Floats(v)
	case TensorData:
		e.Tensor(v)
	case []string:
		e.BeginList()
		for _, s := range v {
			e.Str(s)
		}
		e.EndList()
	case []any:
		e.BeginList()
		for _, x := range v {
			e.Value(x)
		}
		e.EndList()
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		e.BeginDict()
		for _, k := range keys {
			e.Key(k)
			e.Value(v[k])
		}
		e.EndDict()
	default:
		e.misuse(fmt.Sprintf("a value of type %T cannot be written", v))
	}
}

// Close writes the storages and the directory, and returns the first error of all calls. It does
// not close the writer underneath.
func (e *Writer) Close() error {
	if len(e.stack) > 0 {
		e.misuse("a container is still open")
	}
	if !e.done {
		e.misuse("nothing was written")
	}
	e.raw(opStop)
	e.flush()
	if e.err == nil {
		e.fail(e.zw.end())
	}
	for i, s := range e.data {
		if e.err != nil {
			break
		}
		e.fail(e.storage(i, s))
	}
	if e.err == nil {
		e.fail(e.zw.record("byteorder", []byte("little")))
	}
	if e.err == nil {
		e.fail(e.zw.record("version", []byte("3\n")))
	}
	if e.err == nil {
		e.fail(e.zw.finish())
	}
	err := e.err
	e.misuse("the file is closed")
	return err
}

func (e *Writer) storage(i int, s storageData) error {
	if err := e.zw.begin("data/" + strconv.Itoa(i)); err != nil {
		return err
	}
	if s.write == nil {
		if err := e.zw.write(s.bytes); err != nil {
			return err
		}
		return e.zw.end()
	}
	if err := s.write(writerFunc(e.zw.write)); err != nil {
		return err
	}
	if want := s.count * int64(s.dtype.Size()); e.zw.size != want {
		return fmt.Errorf("torchfile: tensor %d wrote %d bytes instead of %d", i, e.zw.size, want)
	}
	return e.zw.end()
}

type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// zipWriter writes a zip archive as torch does: stored records whose data begins at a multiple of
// 64 bytes (an extra field "FB", filled with Z, pads the local header), their sizes in a data
// descriptor, a zip64 end of directory always, no dates.
type zipWriter struct {
	w    *bufio.Writer
	root string
	at   int64 // bytes written

	name   string // of the open record
	start  int64  // of its header
	size   int64
	crc    uint32
	closed []zipEntry
	// Sizes and offsets from here on are written as zip64 fields; 4 GiB unless a test says less.
	wideSize, wideStart int64
}

type zipEntry struct {
	name        string
	start, size int64
	crc         uint32
}

const (
	zipFlags = 0x0808 // sizes follow the data, names are UTF-8
	zipAlign = 64
)

func (z *zipWriter) out(b []byte) error {
	n, err := z.w.Write(b)
	z.at += int64(n)
	return err
}

func (z *zipWriter) begin(name string) error {
	z.name, z.start, z.size, z.crc = z.root+"/"+name, z.at, 0, 0
	if len(z.name) > 1<<15 {
		return errors.New("torchfile: the root folder's name is too long")
	}
	pad := int(-(z.at + 30 + int64(len(z.name)) + 4) & (zipAlign - 1))
	var h []byte
	h = append(h, "PK\x03\x04\x00\x00"...)
	h = binary.LittleEndian.AppendUint16(h, zipFlags)
	h = append(h, make([]byte, 18)...) // method, time, date, checksum, sizes
	h = binary.LittleEndian.AppendUint16(h, uint16(len(z.name)))
	h = binary.LittleEndian.AppendUint16(h, uint16(4+pad))
	h = append(h, z.name...)
	h = append(h, 'F', 'B')
	h = binary.LittleEndian.AppendUint16(h, uint16(pad))
	for range pad {
		h = append(h, 'Z')
	}
	return z.out(h)
}

func (z *zipWriter) write(b []byte) error {
	z.size += int64(len(b))
	z.crc = crc32.Update(z.crc, crc32.IEEETable, b)
	return z.out(b)
}

func (z *zipWriter) writeString(s string) error {
	for len(s) > 0 {
		n := min(len(s), 1<<16)
		if err := z.write([]byte(s[:n])); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

func (z *zipWriter) end() error {
	d := []byte("PK\x07\x08")
	d = binary.LittleEndian.AppendUint32(d, z.crc)
	if z.size >= z.wideSize {
		d = binary.LittleEndian.AppendUint64(d, uint64(z.size))
		d = binary.LittleEndian.AppendUint64(d, uint64(z.size))
	} else {
		d = binary.LittleEndian.AppendUint32(d, uint32(z.size))
		d = binary.LittleEndian.AppendUint32(d, uint32(z.size))
	}
	z.closed = append(z.closed, zipEntry{z.name, z.start, z.size, z.crc})
	return z.out(d)
}

func (z *zipWriter) record(name string, b []byte) error {
	if err := z.begin(name); err != nil {
		return err
	}
	if err := z.write(b); err != nil {
		return err
	}
	return z.end()
}

// finish writes the directory.
func (z *zipWriter) finish() error {
	le := binary.LittleEndian
	dir := z.at
	for _, e := range z.closed {
		var extra []byte
		size, start := uint32(e.size), uint32(e.start)
		if e.size >= z.wideSize {
			size = math.MaxUint32
			extra = le.AppendUint64(extra, uint64(e.size))
			extra = le.AppendUint64(extra, uint64(e.size))
		}
		if e.start >= z.wideStart {
			start = math.MaxUint32
			extra = le.AppendUint64(extra, uint64(e.start))
		}
		if len(extra) > 0 {
			extra = append(le.AppendUint16(le.AppendUint16(nil, 1), uint16(len(extra))), extra...)
		}
		h := []byte("PK\x01\x02\x00\x00\x00\x00")
		h = le.AppendUint16(h, zipFlags)
		h = append(h, make([]byte, 6)...) // method, time, date
		h = le.AppendUint32(h, e.crc)
		h = le.AppendUint32(h, size)
		h = le.AppendUint32(h, size)
		h = le.AppendUint16(h, uint16(len(e.name)))
		h = le.AppendUint16(h, uint16(len(extra)))
		h = append(h, make([]byte, 10)...) // comment, disk, attributes
		h = le.AppendUint32(h, start)
		h = append(h, e.name...)
		if err := z.out(append(h, extra...)); err != nil {
			return err
		}
	}
	end := z.at
	n := uint64(len(z.closed))
	t := []byte("PK\x06\x06")
	t = le.AppendUint64(t, 44)
	t = le.AppendUint16(t, 0x031e)
	t = le.AppendUint16(t, 45)
	t = append(t, make([]byte, 8)...) // disks
	t = le.AppendUint64(t, n)
	t = le.AppendUint64(t, n)
	t = le.AppendUint64(t, uint64(end-dir))
	t = le.AppendUint64(t, uint64(dir))
	t = append(t, "PK\x06\x07\x00\x00\x00\x00"...)
	t = le.AppendUint64(t, uint64(end))
	t = le.AppendUint32(t, 1)
	t = append(t, "PK\x05\x06\x00\x00\x00\x00"...)
	t = le.AppendUint16(t, uint16(min(n, math.MaxUint16)))
	t = le.AppendUint16(t, uint16(min(n, math.MaxUint16)))
	t = le.AppendUint32(t, uint32(min(end-dir, math.MaxUint32)))
	t = le.AppendUint32(t, uint32(min(dir, math.MaxUint32)))
	t = append(t, 0, 0) // comment
	if err := z.out(t); err != nil {
		return err
	}
	return z.w.Flush()
}
