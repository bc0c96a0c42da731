package duplex

import (
	"fmt"
	"net/http"
)

const (
	// MaxFields is the maximum number of fields in the head of a request or of a program's answer. Each takes some
	// 100 bytes of memory beside its text, so a head of small fields would take 20 times its size.
	MaxFields = 256
	// MaxAnswerHead is the maximum size in bytes of the head of a program's answer. The function's limit of memory
	// does not hold for the processes that read it.
	MaxAnswerHead = 64 << 10
)

// ErrFields says that an answer has more than MaxFields fields.
var ErrFields = fmt.Errorf("its answer has more than %d header fields", MaxFields)

// CountFields returns the number of fields in a head. A name counts once for each of its values.
func CountFields(h http.Header) int {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n
}

// CheckFields returns ErrFields for an answer with more than MaxFields fields, and closes it then. added is the number
// of fields in it that may come from a proxy before the program.
func CheckFields(answer *http.Response, added int) error {
	if CountFields(answer.Header) <= MaxFields+added {
		return nil
	}
	_ = answer.Body.Close()
	return ErrFields
}
