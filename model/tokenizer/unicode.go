package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
)

// maxMarks is the number of marks in a row from which on a text is normalized by normalizeMarks: package norm
// puts U+034F into rows of more than 30, of which a character may have four.
const maxMarks = 7

// normalizeForm brings a text into a normalization form, as tokenizers does. Its tables are older than those of
// package norm, so a character that is new to it stays as it is and separates its neighbours.
func normalizeForm(form norm.Form, text []byte) []byte {
	if isASCII(text) || form.IsNormal(text) && !slices.ContainsFunc([]rune(string(text)), newCharacter) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/2)
	begin, marks, long := 0, 0, false
	flush := func(end int) {
		if part := text[begin:end]; long {
			out = normalizeMarks(form, out, part)
		} else {
			out = append(out, form.Bytes(part)...) // form.Append would join it with what is there.
		}
	}
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		switch {
		case r < utf8.RuneSelf:
			marks = 0
		case newCharacter(r):
			flush(at)
			out = append(out, text[at:at+n]...)
			begin, marks, long = at+n, 0, false
		case form.Properties(text[at:]).CCC() != 0:
			marks++
			long = long || marks > maxMarks
		default:
			marks = 0
		}
		at += n
	}
	flush(len(text))
	return out
}

// newCharacter reports whether package norm may change a character that tokenizers does not know.
func newCharacter(r rune) bool {
	if r < 0x300 || characters.Of(r).Is(characters.Normal) {
		return false
	}
	p := norm.NFKC.PropertiesString(string(r))
	return p.CCC() != 0 || !p.BoundaryAfter() || p.Decomposition() != nil
}

// mark is a character with its combining class.
type mark struct {
	text  string
	class uint8
}

// normalizeMarks is the algorithm of Unicode for any number of marks in a row: it decomposes, orders marks by
// their class, and composes.
func normalizeMarks(form norm.Form, out, text []byte) []byte {
	compose := form == norm.NFC || form == norm.NFKC
	apart := map[norm.Form]norm.Form{norm.NFC: norm.NFD, norm.NFKC: norm.NFKD, norm.NFD: norm.NFD,
		norm.NFKD: norm.NFKD}[form]
	var row []mark
	flush := func() {
		slices.SortStableFunc(row, func(a, b mark) int { return int(a.class) - int(b.class) })
		if compose {
			composeMarks(row)
		}
		for _, m := range row {
			out = append(out, m.text...)
		}
		row = row[:0]
	}
	for _, r := range string(text) {
		for _, part := range apart.String(string(r)) {
			m := mark{text: string(part), class: apart.PropertiesString(string(part)).CCC()}
			// A starter that composes with the one before it (Hangul) stays in its row.
			if m.class == 0 && (len(row) == 0 || row[len(row)-1].class != 0 || !compose ||
				norm.NFC.PropertiesString(m.text).BoundaryBefore()) {
				flush()
			}
			row = append(row, m)
		}
	}
	flush()
	return out
}

// composeMarks composes the first character of a row with those behind it that none of their class blocks.
func composeMarks(row []mark) {
	if len(row) == 0 || row[0].class != 0 {
		return
	}
	var blocked uint8
	for i := 1; i < len(row); i++ {
		pair := norm.NFC.String(row[0].text + row[i].text)
		if (blocked == 0 || row[i].class > blocked) && utf8.RuneCountInString(pair) == 1 {
			row[0].text, row[i].text = pair, ""
			continue
		}
		if blocked = row[i].class; blocked == 0 {
			blocked = 255
		}
	}
}

func isASCII[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
