package torchfile

// Kind is what a value is.
type Kind uint8

// Kinds. KindInvalid is also what a missing value (the zero [Value]) has.
const (
	KindInvalid    Kind = iota
	KindNone            // None
	KindBool            // True, False
	KindInt             // an integer of any size
	KindFloat           // a double
	KindComplex         // a complex number
	KindStr             // text: UTF-8, in which lone surrogates may stand as three bytes each
	KindBytes           // bytes
	KindByteArray       // bytearray
	KindList            // list
	KindTuple           // tuple, torch.Size
	KindDict            // dict, OrderedDict, defaultdict, Counter
	KindSet             // set
	KindFrozenSet       // frozenset
	KindGlobal          // a class, function or constant, by name; nothing was imported
	KindObject          // an instance of any class, or a call that was not made
	KindTensor          // a torch tensor, dense or sparse
	KindStorage         // a torch storage without a tensor around it
	KindNDArray         // a numpy array
	KindNPScalar        // a numpy scalar
	KindPersistent      // a persistent id that is no storage
	KindBuffer          // a protocol 5 buffer that was kept out of the file
)

var kindNames = [...]string{
	"invalid", "none", "bool", "int", "float", "complex", "str", "bytes", "bytearray", "list", "tuple", "dict",
	"set", "frozenset", "global", "object", "tensor", "storage", "ndarray", "npscalar", "persistent", "buffer",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "invalid"
}

// Class names a Python class or function: its module and its qualified name. Names that Python 3
// gave to what protocol 2 writes under Python 2 names are used (builtins, not __builtin__).
type Class struct {
	Module string
	Name   string
}

// String is "module.Name", as in [Options].Classes.
func (c Class) String() string {
	if c.Module == "" {
		return c.Name
	}
	return c.Module + "." + c.Name
}
