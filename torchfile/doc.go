// Package torchfile reads what torch.save and pickle.dump wrote, without Python and without
// executing anything, and writes what torch.load reads. Its entry point is [Open]; [NewWriter] begins
// a file.
//
// # Why
//
// A rollout dump is a pickle: a program that Python runs when it loads the file. torch.load runs
// whatever is in it, needs the classes it names, and builds every token id as an object: 44 seconds
// and 6.6 GiB for a dump of 1.1 GB, most of which nobody wanted. This package treats the program as
// data. A class is a name, a call is its name and its arguments, and a value that is not asked for
// costs nothing but the time to run over it.
//
// # Reading
//
// [Open] maps a file: a torch zip (stored or compressed, zip64), a legacy torch file, or a plain
// pickle of any protocol. [File.Load] decodes it:
//
//	f, err := torchfile.Open("rollout_7.pt", nil)
//	...
//	defer f.Close()
//	d, err := f.Load(torchfile.LoadOptions{})
//	...
//	for _, s := range d.Root().Get("samples").All() {
//		fmt.Println(s.Get("index").PyStr(), s.Get("status").Str())
//		tokens, _ = s.Get("tokens").Ints(tokens[:0])
//	}
//
// Lists of numbers and all strings stay where they are in the file until they are asked for, so a
// loaded [Doc] takes a few percent of the file's size.
//
// [File.Scan] is for large files: it visits the elements of one list as they come and forgets them
// afterwards. Fields that are not named are skipped, and still there when they are asked for:
//
//	_, err := f.Scan(torchfile.ScanOptions{
//		Path:   []string{"samples"},
//		Fields: []string{"index", "trace"},
//	}, func(s torchfile.Element) error {
//		for _, ev := range s.Field("trace").Get("events").All() {
//			...
//		}
//		return nil
//	})
//
// # Values
//
// A [Value] is a handle that is passed by value; the zero Value stands for "there is none", and every
// method may be called on it, so a path of Gets needs one check at its end. [Value.Field] reads
// dicts and objects alike. Objects of classes that nobody here has keep their class's name
// ([Value.Class]), arguments ([Value.Args]), state ([Value.State], [Value.Attr]), items and entries
// (All, Pairs): dataclasses, slots, enums, namedtuples, subclasses of dict and list, anything with
// __reduce__. Two handles with the same [Value.ID] are the same Python object; cycles are fine.
//
// Tensors ([Value.Tensor]) and numpy arrays ([Value.NDArray]) are lazy views: shape, element type and
// strides are known at once, elements are read from the map when asked for.
//
// [WriteJSON] shows any value as type-tagged JSON, [Value.PyStr] and [Value.PyRepr] as Python would.
//
// # Hostile, damaged and unfinished files
//
// Nothing in a file is executed. Memory, work, memo and depth are bounded by [Limits]; errors are
// [*Error], say what and at which byte, and wrap one of the sentinels ([ErrIncomplete], [ErrCorrupt],
// [ErrLimit], ...). With [Options].Salvage a file that was cut yields what lies before the cut
// together with the error. A file that shrinks while it is mapped is [ErrChanged], not a crash, in
// Load, Scan and its visitor; see [File.Guard] for later accesses.
//
// # Lifetime and concurrency
//
// Bytes that methods return without copying lie in the map and are valid until [File.Close].
// Values of an element are valid until the visitor returns. A File may be used by several goroutines
// at once; a Doc and its Values by one at a time.
//
// The formats, and how the reader works, are described in FORMAT.md beside the code.
package torchfile
