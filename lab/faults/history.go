package faults

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"time"
)

// Hash stands for the bytes of a body, or for the one of several equally right answers
// that it is.
type Hash uint64

// MarshalText writes it in hex: programs that read JSON would round a number of 64 bits.
func (h Hash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// hashOf is the hash of bytes.
func hashOf(b []byte) Hash {
	h := fnv.New64a()
	h.Write(b)
	return Hash(h.Sum64())
}

// Answer is what came back for one request.
type Answer struct {
	// At is when all of it was there, from the beginning of the load.
	At time.Duration `json:"at_ns"`
	// Status is the HTTP status, of a callback that of the function; Hash is of the body
	// of a good one.
	Status int  `json:"status"`
	Hash   Hash `json:"hash"`
	// Callback: it came to the callback's URL, and not to the request itself.
	Callback bool `json:"callback,omitempty"`
}

// good reports whether the status is one of success.
func (a Answer) good() bool { return a.Status >= 200 && a.Status <= 299 }

// Request is one request and what became of it.
type Request struct {
	ID       int    `json:"id"`
	Function string `json:"function"`
	// Async: it was sent to be answered later, with a callback.
	Async bool `json:"async,omitempty"`
	// Guest: it belongs to the fault, and so does not count for the shares within the
	// objective.
	Guest bool `json:"guest,omitempty"`
	// Intended and Sent are when it was to be sent and when it was, from the beginning of
	// the load. Unsent: it was not, since too many were unanswered.
	Intended time.Duration `json:"intended_ns"`
	Sent     time.Duration `json:"sent_ns"`
	Unsent   bool          `json:"unsent,omitempty"`
	// Refused: no connection was made, so that nobody has promised an answer. Broken says
	// why a connection that was made brought none.
	Refused bool   `json:"refused,omitempty"`
	Broken  string `json:"broken,omitempty"`
	// Want is the hash of the right answer.
	Want Hash `json:"want"`
	// SLO is within how long it should be answered, Bound within how long it must.
	SLO   time.Duration `json:"slo_ns"`
	Bound time.Duration `json:"bound_ns"`
	// Answers are in the order in which they came.
	Answers []Answer `json:"answers"`
}

// Stray is a callback for a request that was never made.
type Stray struct {
	// Path is what it was sent to.
	Path string
}

// History is what became of all requests of one load.
type History struct {
	Requests []Request
	Strays   []Stray
}

// write appends the history to w, a line of JSON for each request.
func (h *History) write(w io.Writer, fault string, run int) error {
	encoder := json.NewEncoder(w)
	for i := range h.Requests {
		if err := encoder.Encode(struct {
			Fault string `json:"fault"`
			Run   int    `json:"run"`
			*Request
		}{fault, run, &h.Requests[i]}); err != nil {
			return err
		}
	}
	return nil
}
