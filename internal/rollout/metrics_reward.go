package rollout

import (
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/torchfile"
)

// rewardKey stands for a value in Python's sense of equality: two values are == when their keys are.
// NaN equals nothing.
type rewardKey struct {
	kind byte
	num  float64
	text string
}

// Kinds of keys: numbers compare with each other whatever their type, everything else with its kind.
const (
	keyNone    = 'z'
	keyNumber  = 'n'
	keyInteger = 'i' // one that no float64 is equal to
	keyNaN     = 'N'
	keyText    = 's'
	keyOther   = 'o'
)

// rewardValue is a reward that outlives its sample.
type rewardValue struct {
	key      rewardKey
	number   float64
	isNumber bool
	typeName string // Python's
	// rounded is str(round(reward, 1)), roundErr what Python raises instead.
	rounded, roundErr string
}

// maxKeyNodes bounds how much of a list or dict is compared, maxKeyText how much of a text: what is larger
// equals nothing, and of longer texts the beginning and the length count. A file may hold the same large
// value in every sample.
const (
	maxKeyNodes = 256
	maxKeyText  = 4096
)

// keyOf makes the key of a value.
func keyOf(v torchfile.Value) rewardKey {
	nodes := maxKeyNodes
	k := nodeKey(v, &nodes)
	if nodes < 0 {
		return rewardKey{kind: keyNaN}
	}
	return k
}

func nodeKey(v torchfile.Value, nodes *int) rewardKey {
	if *nodes--; *nodes < 0 {
		return rewardKey{kind: keyNaN}
	}
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return rewardKey{kind: keyNone}
	case torchfile.KindStr:
		b := v.RawStr()
		if len(b) > maxKeyText {
			return rewardKey{kind: keyText, text: string(b[:maxKeyText]), num: float64(len(b))}
		}
		return rewardKey{kind: keyText, text: string(b)}
	case torchfile.KindInt:
		if i, ok := v.Int(); ok {
			if f := float64(i); f < 1<<63 && int64(f) == i {
				return rewardKey{kind: keyNumber, num: f}
			}
			return rewardKey{kind: keyInteger, text: strconv.FormatInt(i, 16)}
		}
		if i, ok := v.BigInt(); ok {
			if f, acc := i.Float64(); acc == 0 {
				return rewardKey{kind: keyNumber, num: f}
			}
			return rewardKey{kind: keyInteger, text: i.Text(16)}
		}
	case torchfile.KindDict:
		var parts []string
		for k, x := range v.Pairs() {
			parts = append(parts, nodeKey(k, nodes).String()+":"+nodeKey(x, nodes).String())
			if *nodes < 0 {
				return rewardKey{kind: keyNaN}
			}
		}
		sort.Strings(parts)
		return rewardKey{kind: keyOther, text: "{" + strings.Join(parts, ",") + "}"}
	case torchfile.KindList, torchfile.KindTuple:
		var b strings.Builder
		b.WriteString(v.Kind().String())
		for _, x := range v.All() {
			b.WriteString("," + nodeKey(x, nodes).String())
			if *nodes < 0 {
				return rewardKey{kind: keyNaN}
			}
		}
		return rewardKey{kind: keyOther, text: b.String()}
	}
	if f, _, ok := number(v); ok {
		if math.IsNaN(f) {
			return rewardKey{kind: keyNaN}
		}
		return rewardKey{kind: keyNumber, num: f}
	}
	return rewardKey{kind: keyOther, text: v.Kind().String(), num: float64(v.ID())} // by identity
}

// String makes keys comparable as text within a larger key.
func (k rewardKey) String() string {
	switch k.kind {
	case keyNumber:
		return "n" + strconv.FormatFloat(k.num+0, 'g', -1, 64)
	case keyText:
		return "s" + strconv.Quote(k.text)
	}
	return string(rune(k.kind)) + k.text
}

// maxIntDigits is the number of digits beyond which Python refuses to write an integer.
const maxIntDigits = 4300

// intStr is Python's str() of an integer; err is what it raises.
func intStr(v torchfile.Value) (s, err string) {
	const tooLong = "ValueError: Exceeds the limit (4300 digits) for integer string conversion"
	if i, ok := v.Int(); ok {
		return strconv.FormatInt(i, 10), ""
	}
	i, ok := v.BigInt()
	if !ok || i.BitLen() > maxIntDigits*10/3 {
		return "", tooLong
	}
	if s = i.String(); len(strings.TrimPrefix(s, "-")) > maxIntDigits {
		return "", tooLong
	}
	return s, ""
}

// pickReward is Sample.get_reward_value: the reward, or its entry under key. err is what Python raises.
func pickReward(v torchfile.Value, key string) (r rewardValue, err string) {
	if key != "" {
		if v, err = subscript(v, key); err != "" {
			return rewardValue{key: rewardKey{kind: keyNone}, typeName: "NoneType"}, err
		}
	}
	r.key, r.typeName = keyOf(v), pyTypeName(v)
	r.number, _, r.isNumber = number(v)
	switch v.Kind() {
	case torchfile.KindBool:
		r.rounded = strconv.FormatFloat(r.number, 'f', 0, 64) // bool has int's __round__
	case torchfile.KindInt:
		r.rounded, r.roundErr = intStr(v)
	case torchfile.KindFloat:
		r.rounded = pyFloatStr(pyRound1(r.number))
	case torchfile.KindNPScalar:
		r.rounded = npRounded(v, r.number)
	default:
		r.roundErr = "TypeError: type " + r.typeName + " doesn't define __round__ method"
	}
	return r, ""
}

// npRounded is str(round(x, 1)) of a numpy scalar.
func npRounded(v torchfile.Value, x float64) string {
	n, err := v.NPScalar()
	switch {
	case err != nil || n.Type.Kind != 'f':
		return v.PyStr()
	case n.Type.Size == 4: // all of it in float32
		return pyFloatBits(float64(float32(math.RoundToEven(float64(float32(x)*10)))/10), 32)
	case n.Type.Size == 2:
		return strconv.FormatFloat(npRound1(x), 'f', 1, 32)
	}
	return pyFloatStr(npRound1(x))
}

// categoryOf is the key of a reward category and its name in a metric's key; err is what Python raises.
func categoryOf(v torchfile.Value) (key rewardKey, name, err string) {
	switch v.Kind() {
	case torchfile.KindList, torchfile.KindDict, torchfile.KindSet, torchfile.KindByteArray, torchfile.KindNDArray:
		return key, "", "TypeError: unhashable type: '" + pyTypeName(v) + "'"
	case torchfile.KindNone:
		name = "None"
	default:
		if name = scalarText(v, maxWord); name == "" && v.Kind() != torchfile.KindStr {
			name = pyTypeName(v)
		}
	}
	return keyOf(v), name, ""
}

// subscript is v[key]; err is what Python raises.
func subscript(v torchfile.Value, key string) (x torchfile.Value, err string) {
	switch v.Kind() {
	case torchfile.KindDict:
		if x = v.Get(key); !x.Exists() {
			return x, "KeyError: '" + key + "'"
		}
		return x, ""
	case torchfile.KindList, torchfile.KindTuple:
		return x, "TypeError: " + pyTypeName(v) + " indices must be integers or slices, not str"
	case torchfile.KindStr:
		return x, "TypeError: string indices must be integers, not 'str'"
	}
	return x, "TypeError: '" + pyTypeName(v) + "' object is not subscriptable"
}

// pyTypeName is type(v).__name__.
func pyTypeName(v torchfile.Value) string {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return "NoneType"
	case torchfile.KindBool:
		return "bool"
	case torchfile.KindInt:
		return "int"
	case torchfile.KindFloat:
		return "float"
	case torchfile.KindComplex:
		return "complex"
	case torchfile.KindStr:
		return "str"
	case torchfile.KindBytes:
		return "bytes"
	case torchfile.KindByteArray:
		return "bytearray"
	case torchfile.KindList:
		return "list"
	case torchfile.KindTuple:
		return "tuple"
	case torchfile.KindDict:
		return "dict"
	case torchfile.KindSet:
		return "set"
	case torchfile.KindFrozenSet:
		return "frozenset"
	case torchfile.KindTensor:
		return "Tensor"
	case torchfile.KindNDArray:
		return "numpy.ndarray"
	}
	name := v.Class().Name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[i+1:]
	}
	if name == "" {
		return "object"
	}
	return name
}

// slimeStatuses are the values of Sample.Status.
var slimeStatuses = []string{"pending", "completed", "truncated", "aborted", "failed"}

// loaderFails is what slime's load_debug_rollout_data raises on an entry of the dump (Sample.from_dict),
// "" when it takes it.
func loaderFails(s *Sample) string {
	v := s.Raw
	switch v.Kind() {
	case torchfile.KindDict:
	case torchfile.KindStr:
		if v.Len() == 0 {
			return "KeyError: 'status'"
		}
		return "ValueError: dictionary update sequence element #0 has length 1; 2 is required"
	default:
		return "TypeError: '" + pyTypeName(v) + "' object is not iterable"
	}
	st := v.Get("status")
	if !st.Exists() {
		return "KeyError: 'status'"
	}
	if st.Kind() != torchfile.KindObject && st.Kind() != torchfile.KindGlobal {
		known := false
		for _, x := range slimeStatuses {
			known = known || st.Is(x)
		}
		if !known {
			return "ValueError: " + st.PyRepr() + " is not a valid Sample.Status"
		}
	}
	for _, name := range [...]string{"spec_info", "prefix_cache_info"} {
		if x := v.Get(name); x.Exists() && x.Kind() != torchfile.KindDict {
			return "AttributeError: '" + pyTypeName(x) + "' object has no attribute 'get'"
		}
	}
	return ""
}
