// Package characters says what Python's tokenizers knows of a character: its category, whether it is a
// space, punctuation, a mark or a digit, and its lower case. The parts of tokenizers have tables of different
// versions of Unicode, and Go's are of yet another one, so generate.py asks tokenizers for all characters and
// writes table.go. The package does not split or normalize text.
//
// Begin reading at Of.
package characters

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// Properties are a character's category, in the lower five bits, and its flags.
type Properties uint16

// The flags of a character.
const (
	// Space is white space, as Rust and Oniguruma see it.
	Space Properties = 1 << (5 + iota)
	// Other is what clean_text of BertNormalizer removes: control characters, and those for private use.
	Other
	// Punctuation is what BertPreTokenizer and Punctuation isolate.
	Punctuation
	// Nonspacing is a mark that strip_accents of BertNormalizer removes.
	Nonspacing
	// Combining is a mark that StripAccents removes.
	Combining
	// Numeric is a digit of the pre-tokenizer Digits.
	Numeric
	// Word is a character of a word of the pre-tokenizer Whitespace, and of single_word.
	Word
	// Lower has another lower case.
	Lower
	// Normal takes part in the normalization forms of tokenizers.
	Normal
	// Han is of the script Han.
	Han
	// PatternWord is a character of a word in a pattern.
	PatternWord
)

// Category is a general category of Unicode.
type Category uint8

// names lists the categories in the order of their numbers.
const names = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCo"

// categoryBits are the bits of Properties with the category.
const categoryBits = 1<<5 - 1

// Category returns the general category.
func (p Properties) Category() Category { return Category(p & categoryBits) }

// Is reports whether one of the flags is set.
func (p Properties) Is(flags Properties) bool { return p&flags != 0 }

// Categories returns a set of categories, one bit for each, by its name, such as "Lu", or all that begin with
// a letter, such as "L". It is 0 if there is none.
func Categories(name string) uint32 {
	var set uint32
	for i := 0; i < len(names); i += 2 {
		if name == names[i:i+2] || name == names[i:i+1] {
			set |= 1 << (i / 2)
		}
	}
	return set
}

const (
	blockBits = 7
	blockSize = 1 << blockBits
	count     = utf8.MaxRune + 1
)

// tables are the unpacked tables: blocks of 128 characters, of which many are equal.
type tables struct {
	blocks [count / blockSize]uint16
	block  [][blockSize]Properties
	lower  map[rune]rune
}

var unpacked = sync.OnceValue(func() *tables {
	t := &tables{lower: map[rune]rune{}}
	numbers := map[[blockSize]Properties]uint16{}
	var block [blockSize]Properties
	c, rest := 0, []byte(runs)
	for len(rest) > 0 {
		length, n := binary.Uvarint(rest)
		p, m := binary.Uvarint(rest[n:])
		rest = rest[n+m:]
		for range length {
			block[c%blockSize] = Properties(p)
			if c++; c%blockSize == 0 {
				number, ok := numbers[block]
				if !ok {
					number = uint16(len(t.block))
					t.block = append(t.block, block)
					numbers[block] = number
				}
				t.blocks[c/blockSize-1] = number
			}
		}
	}
	t.unpackCases()
	return t
})

func (t *tables) unpackCases() {
	first, rest := 0, []byte(cases)
	next := func() int {
		v, n := binary.Uvarint(rest)
		rest = rest[n:]
		return int(v)
	}
	for len(rest) > 0 {
		first += next()
		length, step, zigzag := next(), next(), next()
		delta := zigzag/2 ^ -(zigzag & 1)
		for i := range length {
			t.lower[rune(first+i*step)] = rune(first + i*step + delta)
		}
	}
}

// Of returns the properties of a character.
func Of(r rune) Properties {
	if uint32(r) >= count {
		return 0
	}
	t := unpacked()
	return t.block[t.blocks[r>>blockBits]][r%blockSize]
}

// ToLower appends the lower case of a character, without regard to its neighbours. Only U+0130 has one of
// two characters.
func ToLower(text []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return append(text, byte(r))
	case r == 0x130:
		return append(text, "i\u0307"...)
	case Of(r).Is(Lower):
		r = unpacked().lower[r]
	}
	return utf8.AppendRune(text, r)
}
