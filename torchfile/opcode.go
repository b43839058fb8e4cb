package torchfile

// Pickle opcodes, named as in CPython's pickletools (protocols 0 to 5).
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opDup             = '2'
	opFloat           = 'F'
	opInt             = 'I'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opLong            = 'L'
	opBinInt2         = 'M'
	opNone            = 'N'
	opPersID          = 'P'
	opBinPersID       = 'Q'
	opReduce          = 'R'
	opString          = 'S'
	opBinString       = 'T'
	opShortBinString  = 'U'
	opUnicode         = 'V'
	opBinUnicode      = 'X'
	opAppend          = 'a'
	opBuild           = 'b'
	opGlobal          = 'c'
	opDict            = 'd'
	opAppends         = 'e'
	opGet             = 'g'
	opBinGet          = 'h'
	opInst            = 'i'
	opLongBinGet      = 'j'
	opList            = 'l'
	opObj             = 'o'
	opPut             = 'p'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opBinFloat        = 'G'
	opEmptyList       = ']'
	opEmptyDict       = '}'
	opEmptyTuple      = ')'
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opProto           = 0x80
	opNewObj          = 0x81
	opExt1            = 0x82
	opExt2            = 0x83
	opExt4            = 0x84
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opNewObjEx        = 0x92
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96
	opNextBuffer      = 0x97
	opReadonlyBuffer  = 0x98

	maxProtocol = 5
)

// What a run of numbers holds; the low four bits of a runInfo entry are the opcode's length.
const (
	runSize  = 0x0f
	runInt   = 0x10
	runFloat = 0x20
	runNone  = 0x40
	runBool  = 0x80
)

// runInfo gives, for the opcodes that push one number, bool or None of fixed size, that size and
// what it is; 0 for all others.
var runInfo = [256]uint8{
	opBinInt1:  2 | runInt,
	opBinInt2:  3 | runInt,
	opBinInt:   5 | runInt,
	opBinFloat: 9 | runFloat,
	opNone:     1 | runNone,
	opNewTrue:  1 | runBool,
	opNewFalse: 1 | runBool,
}

// opPush is the size of the opcodes of fixed size whose effect on a skipped value is one more value
// on the stack; 0 for all others.
var opPush = [256]uint8{
	opBinInt1: 2, opBinInt2: 3, opBinInt: 5, opBinFloat: 9, opNone: 1, opNewTrue: 1, opNewFalse: 1,
	opEmptyList: 1, opEmptyDict: 1, opEmptyTuple: 1, opEmptySet: 1,
	opExt1: 2, opExt2: 3, opExt4: 5, opNextBuffer: 1,
}

// opSize is the size of the opcodes of fixed size but MARK and STOP; 0 for all others.
var opSize = [256]uint8{
	opBinInt1: 2, opBinInt2: 3, opBinInt: 5, opBinFloat: 9, opNone: 1, opNewTrue: 1, opNewFalse: 1,
	opEmptyList: 1, opEmptyDict: 1, opEmptyTuple: 1, opEmptySet: 1, opExt1: 2, opExt2: 3, opExt4: 5,
	opBinGet: 2, opLongBinGet: 5, opBinPut: 2, opLongBinPut: 5, opMemoize: 1, opProto: 2, opFrame: 9,
	opPop: 1, opPopMark: 1, opDup: 1, opAppend: 1, opAppends: 1, opSetItem: 1, opSetItems: 1, opAddItems: 1,
	opTuple: 1, opTuple1: 1, opTuple2: 1, opTuple3: 1, opList: 1, opDict: 1, opFrozenSet: 1,
	opReduce: 1, opBuild: 1, opObj: 1, opNewObj: 1, opNewObjEx: 1, opStackGlobal: 1, opBinPersID: 1,
	opNextBuffer: 1, opReadonlyBuffer: 1,
}

// opNames are the opcodes' names in CPython's pickletools.
var opNames = [256]string{
	opMark:            "MARK",
	opStop:            "STOP",
	opPop:             "POP",
	opPopMark:         "POP_MARK",
	opDup:             "DUP",
	opFloat:           "FLOAT",
	opInt:             "INT",
	opBinInt:          "BININT",
	opBinInt1:         "BININT1",
	opLong:            "LONG",
	opBinInt2:         "BININT2",
	opNone:            "NONE",
	opPersID:          "PERSID",
	opBinPersID:       "BINPERSID",
	opReduce:          "REDUCE",
	opString:          "STRING",
	opBinString:       "BINSTRING",
	opShortBinString:  "SHORT_BINSTRING",
	opUnicode:         "UNICODE",
	opBinUnicode:      "BINUNICODE",
	opAppend:          "APPEND",
	opBuild:           "BUILD",
	opGlobal:          "GLOBAL",
	opDict:            "DICT",
	opAppends:         "APPENDS",
	opGet:             "GET",
	opBinGet:          "BINGET",
	opInst:            "INST",
	opLongBinGet:      "LONG_BINGET",
	opList:            "LIST",
	opObj:             "OBJ",
	opPut:             "PUT",
	opBinPut:          "BINPUT",
	opLongBinPut:      "LONG_BINPUT",
	opSetItem:         "SETITEM",
	opTuple:           "TUPLE",
	opSetItems:        "SETITEMS",
	opBinFloat:        "BINFLOAT",
	opEmptyList:       "EMPTY_LIST",
	opEmptyDict:       "EMPTY_DICT",
	opEmptyTuple:      "EMPTY_TUPLE",
	opBinBytes:        "BINBYTES",
	opShortBinBytes:   "SHORT_BINBYTES",
	opProto:           "PROTO",
	opNewObj:          "NEWOBJ",
	opExt1:            "EXT1",
	opExt2:            "EXT2",
	opExt4:            "EXT4",
	opTuple1:          "TUPLE1",
	opTuple2:          "TUPLE2",
	opTuple3:          "TUPLE3",
	opNewTrue:         "NEWTRUE",
	opNewFalse:        "NEWFALSE",
	opLong1:           "LONG1",
	opLong4:           "LONG4",
	opShortBinUnicode: "SHORT_BINUNICODE",
	opBinUnicode8:     "BINUNICODE8",
	opBinBytes8:       "BINBYTES8",
	opEmptySet:        "EMPTY_SET",
	opAddItems:        "ADDITEMS",
	opFrozenSet:       "FROZENSET",
	opNewObjEx:        "NEWOBJ_EX",
	opStackGlobal:     "STACK_GLOBAL",
	opMemoize:         "MEMOIZE",
	opFrame:           "FRAME",
	opByteArray8:      "BYTEARRAY8",
	opNextBuffer:      "NEXT_BUFFER",
	opReadonlyBuffer:  "READONLY_BUFFER",
}

// opName is an opcode's name, "" for a byte that is none.
func opName(op byte) string { return opNames[op] }
