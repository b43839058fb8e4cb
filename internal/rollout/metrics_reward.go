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

// maxKeyDepth bounds how deep dicts within rewards are compared, maxKeyText how much text of them.
const (
	maxKeyDepth = 8
	maxKeyText  = 4096
)

func keyOf(v torchfile.Value, depth int) rewardKey {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return rewardKey{kind: keyNone}
	case torchfile.KindStr:
		return rewardKey{kind: keyText, text: v.Str()}
	case torchfile.KindInt:
		if i, ok := v.Int(); ok {
			if f := float64(i); f < 1<<63 && int64(f) == i {
				return rewardKey{kind: keyNumber, num: f}
			}
			return rewardKey{kind: keyInteger, text: strconv.FormatInt(i, 10)}
		}
		if i, ok := v.BigInt(); ok {
			if f, acc := i.Float64(); acc == 0 {
				return rewardKey{kind: keyNumber, num: f}
			}
			return rewardKey{kind: keyInteger, text: i.Text(16)}
		}
	case torchfile.KindDict:
		if depth < maxKeyDepth {
			var parts []string
			size := 0
			for k, x := range v.Pairs() {
				p := keyOf(k, depth+1).String() + ":" + keyOf(x, depth+1).String()
				if size += len(p); size > maxKeyText {
					break
				}
				parts = append(parts, p)
			}
			sort.Strings(parts)
			return rewardKey{kind: keyOther, text: "{" + strings.Join(parts, ",") + "}"}
		}
	}
	if f, _, ok := number(v); ok {
		if math.IsNaN(f) {
			return rewardKey{kind: keyNaN}
		}
		return rewardKey{kind: keyNumber, num: f + 0} // -0.0 == 0.0 in Go's comparison, too
	}
	s := v.PyRepr()
	return rewardKey{kind: keyOther, text: s[:min(len(s), maxKeyText)]}
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

// pickReward is Sample.get_reward_value: the reward, or its entry under key. err is what Python raises.
func pickReward(v torchfile.Value, key string) (r rewardValue, err string) {
	if key != "" {
		if v, err = subscript(v, key); err != "" {
			return rewardValue{key: rewardKey{kind: keyNone}, typeName: "NoneType"}, err
		}
	}
	r.key, r.typeName = keyOf(v, 0), pyTypeName(v)
	r.number, _, r.isNumber = number(v)
	switch v.Kind() {
	case torchfile.KindBool:
		r.rounded = strconv.FormatFloat(r.number, 'f', 0, 64) // bool has int's __round__
	case torchfile.KindInt:
		r.rounded = v.PyStr()
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
