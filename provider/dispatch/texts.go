package dispatch

// This file looks at the bodies of requests with texts: how many texts they have, and about how many tokens. It knows no
// protocol. In JSON the texts are the strings in an array, as OpenAI's input and Cohere's documents are, or in the objects
// of one, or there is one text in no array. Token ids are the numbers in an array, or in each array of one.

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
	// inside and outside are the weights of the strings in any array and of the others; commas separate elements of
	// arrays.
	inside, outside, commas int
}

// weights are the parts of tokens that bytes stand for. A punctuation mark is a token of its own, and a word of English
// has a token for about five letters.
var weights = func() (of [256]uint8) {
	for c := range of {
		of[c] = 1
		if c > ' ' && c < 0x7f && !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			of[c] = 6
		}
	}
	return of
}()

// scanBody counts in a body. It reads any bytes, valid JSON or not.
func scanBody(body []byte) (s scan) {
	var inArray [maxNested + 1]bool
	depth, arrays := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			length, weight := scanString(body[i+1:])
			i += length
			if arrays > 0 {
				s.inside += weight
			} else {
				s.outside += weight
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

// scanString returns the length of a JSON string with its closing quote, and its weight.
func scanString(from []byte) (length, weight int) {
	for i := 0; i < len(from); i++ {
		switch c := from[i]; {
		case c == '"':
			return i + 1, weight
		case c != '\\' || i+1 == len(from):
			weight += int(weights[c])
		default:
			i++
			switch from[i] {
			case 'u': // A character of two or three bytes.
				i += 4
				weight += 2
			case '"', '\\', '/':
				weight += int(weights[from[i]])
			default:
				weight++
			}
		}
	}
	return len(from), weight
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
