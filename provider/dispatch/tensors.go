package dispatch

import (
	"bytes"
	"strconv"
)

var shapeKey = []byte(`"shape"`)

// lookAtTensors looks at a body with tensors in the Open Inference Protocol, whether their elements are JSON or follow it.
// The shape of the first one has the rows and their length. ok is false without a shape of two dimensions.
func lookAtTensors(body []byte) (of look, ok bool) {
	head := body[:min(len(body), maxScanned)]
	at := bytes.Index(head, shapeKey)
	if at < 0 {
		return look{}, false
	}
	rest := head[at+len(shapeKey):]
	rest, isKey := after(rest, ':')
	rest, isArray := after(rest, '[')
	rows, rest := number(rest)
	rest, hasMore := after(rest, ',')
	length, rest := number(rest)
	_, hasEnded := after(rest, ']')
	if !isKey || !isArray || !hasMore || !hasEnded || rows < 1 || length < 1 {
		return look{}, false
	}
	rows = min(rows, max(1, len(body)/length)) // Each element takes a byte or more, whatever the shape says.
	return look{format: shaped, rows: min(rows, maxTexts), length: length}, true
}

// after returns what follows a character of JSON, and whether the text begins with it.
func after(text []byte, c byte) (rest []byte, ok bool) {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 || text[0] != c {
		return nil, false
	}
	return text[1:], true
}

// number reads a whole number of at most nine digits, -1 if there is none.
func number(text []byte) (n int, rest []byte) {
	text = bytes.TrimLeft(text, " \t\r\n")
	digits := 0
	for digits < min(len(text), 9) && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	n, err := strconv.Atoi(string(text[:digits]))
	if err != nil {
		return -1, text
	}
	return n, text[digits:]
}
