package duplex

import (
	"errors"
	"fmt"
	"net/http"
)

const (
	// MaxFields is the maximum number of fields in the head of a request or of a program's answer. Each takes some
	// 100 bytes of memory in addition to its text, so a head of small fields would take 20 times its size.
	MaxFields = 256
	// MaxAnswerHead is the maximum size in bytes of the head of a program's answer. The function's limit of memory
	// does not hold for the processes that read it.
	MaxAnswerHead = 64 << 10
)

// ErrHead is wrapped by the errors of CheckHead.
var ErrHead = errors.New("its answer cannot be passed on")

// CountFields returns the number of fields in a head. A name counts once for each of its values.
func CountFields(h http.Header) int {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n
}

// CheckHead checks an answer's status and the number of its fields, and closes an answer with a wrong one. net/http reads
// a status from 000 to 999, and panics when it writes one below 100. added is the number of fields that may come from a
// proxy before the program.
func CheckHead(answer *http.Response, added int) error {
	var err error
	switch {
	case answer.StatusCode < 100:
		err = fmt.Errorf("%w: it has the status %03d", ErrHead, answer.StatusCode)
	case CountFields(answer.Header) > MaxFields+added:
		err = fmt.Errorf("%w: it has more than %d header fields", ErrHead, MaxFields)
	default:
		return nil
	}
	_ = answer.Body.Close()
	return err
}
