package dispatch

import (
	"sync/atomic"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// This file looks at the bodies of requests to models of texts for which no [Counter] says how many tokens there are: how
// many rows they have, and of how many bytes or numbers. It knows no protocol. In JSON the texts are the strings in an
// array, as OpenAI's input and Cohere's documents are, or in the objects of one, or there is one text in no array. Token
// ids are the numbers in an array, or in each array of one.

// Counter counts the tokens of requests' texts. It is safe for concurrent use.
type Counter interface {
	// Count returns how many texts a request has, and how many tokens they have together. exact reports that all were
	// counted. rows is 0 if the request has no texts, or if their tokens cannot be counted yet. It must not block: it is
	// called while the request waits.
	Count(r *frame.Request) (rows, tokens int, exact bool)
}

// Counting is what counts the tokens of a function's texts. The zero value counts nothing.
type Counting struct{ by atomic.Pointer[Counter] }

// Set makes a counter count from now on; nil ends that.
func (c *Counting) Set(by Counter) {
	if by == nil {
		c.by.Store(nil)
		return
	}
	c.by.Store(&by)
}

// count is [Counter.Count]. It returns 0 if nothing counts.
func (c *Counting) count(r *frame.Request) (rows, tokens int, exact bool) {
	if c == nil {
		return 0, 0, false
	}
	by := c.by.Load()
	if by == nil {
		return 0, 0, false
	}
	return (*by).Count(r)
}

const (
	// maxScanned bounds how much of a body is read. The rest counts as what was read.
	maxScanned = 256 << 10
	// maxNested bounds how deep arrays and objects may lie in each other. Deeper ones are not looked at.
	maxNested = 64
	// maxTexts bounds the rows of a body. An instance refuses one with more.
	maxTexts = 2048
)

// scan is what is counted in a body.
type scan struct {
	// strings are those in an array, objects and arrays lie in an array, too. outer are the arrays that lie in none.
	strings, objects, arrays, outer int
	// inside and outside are the bytes of the strings in any array and of the others; commas separate elements of arrays.
	inside, outside, commas int
}

// scanBody counts in a body. It reads any bytes, valid JSON or not.
func scanBody(body []byte) (s scan) {
	var inArray [maxNested + 1]bool
	depth, arrays := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			length := scanString(body[i+1:])
			i += length
			if arrays > 0 {
				s.inside += length - 1
			} else {
				s.outside += length - 1
			}
			if inArray[depth] {
				s.strings++
			}
		case '[', '{':
			array := body[i] == '['
			switch {
			case inArray[depth] && array:
				s.arrays++
			case inArray[depth]:
				s.objects++
			}
			if depth == maxNested {
				return s
			}
			if depth++; array {
				if arrays == 0 {
					s.outer++
				}
				arrays++
			}
			inArray[depth] = array
		case ']', '}':
			if depth > 0 {
				if inArray[depth] {
					arrays--
				}
				inArray[depth] = false
				depth--
			}
		case ',':
			if inArray[depth] {
				s.commas++
			}
		}
	}
	return s
}

// scanString returns the length of a JSON string with its closing quote.
func scanString(from []byte) int {
	for i := 0; i < len(from); i++ {
		switch from[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(from) + 1
}

// lookAtTexts looks at a body in JSON with texts, or with token ids.
func lookAtTexts(body []byte) look {
	s := scanBody(body[:min(len(body), maxScanned)])
	words, rows := true, s.strings
	switch {
	case s.strings == 0 && s.commas > 4*s.objects: // Numbers: token ids, in one or several inputs.
		words = false
		switch {
		case s.objects == 0:
			rows = s.arrays / max(1, s.outer)
		case s.arrays > 0:
			rows = s.arrays / s.objects
		default: // Rows, by the names of inputs.
			rows = s.objects
		}
	case s.strings == 0:
		rows = s.objects
	}
	rows = max(1, rows)
	if words {
		of := look{format: worded, rows: rows, length: s.inside/rows + s.outside}
		return of.beyond(len(body))
	}
	of := look{format: textual, rows: rows, length: s.commas / rows}
	return of.beyond(len(body))
}

// beyond is the look of a body of so many bytes, of which only the first maxScanned were read.
func (l look) beyond(length int) look {
	more := max(1, float64(length)/maxScanned)
	if l.rows == 1 {
		l.length = int(more * float64(l.length))
	} else {
		l.rows = min(int(more*float64(l.rows)), maxTexts)
	}
	return l
}
