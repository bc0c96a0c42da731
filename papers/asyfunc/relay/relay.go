// Package relay carries tensors between two instances: a body, which has the rows of a batch,
// and a shadow, which computes some of them (AsyFunc, SoCC 2023, §5.2). On one node the body
// makes a memory file and passes it once over a Unix socket; messages then name places, both
// read and write the tensors where they are, and nothing is copied that was built there.
// Elsewhere tensors go with the messages over TCP, or over TLS if instances have certificates. The
// package does not know what is computed, nor who is paired with whom: that is package pair's.
//
// Begin with [Dial] and [Peer.Run]; [Serve] is the other side.
package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Identity says what both sides must have in common for rows to be exchanged.
type Identity struct {
	// Model is the hash of the model's content, Engine the engine's version, CPU the kind of
	// CPU: other kernels round differently. Part is a hash of what the shadow holds.
	Model  string `json:"model"`
	Engine string `json:"engine"`
	CPU    string `json:"cpu"`
	Part   string `json:"part"`
	// MaxRows is the largest job of a shadow in rows, 0 of a body.
	MaxRows int `json:"max_rows,omitempty"`
}

// Differs says in what two identities differ, nil if they fit. The error wraps [ErrRefused].
func (i Identity) Differs(o Identity) error {
	for _, f := range []struct{ name, mine, other string }{
		{"model", i.Model, o.Model}, {"engine", i.Engine, o.Engine}, {"cpu", i.CPU, o.CPU}, {"part", i.Part, o.Part},
	} {
		if f.mine != f.other {
			return fmt.Errorf("%w: %s is %.100q here and %.100q there", ErrRefused, f.name, f.mine, f.other)
		}
	}
	return nil
}

var (
	// ErrRefused is wrapped if the other side is of another model, engine, CPU or part.
	ErrRefused = errors.New("the other side does not fit")
	// ErrLate is wrapped if an answer did not come within a job's time.
	ErrLate = errors.New("no answer in time")
	// ErrLost is wrapped if the connection broke.
	ErrLost = errors.New("the connection broke")
)

// Job is rows to compute.
type Job struct {
	// Segment is the number of the run of blocks, from 0. Rows are the rows of each input.
	Segment, Rows int
	// Within is the time until the answer must be there. The other side does not begin a job
	// whose time is up.
	Within time.Duration
	Inputs []tensor.Tensor
	// Into are the outputs' places, whose sizes are those of the outputs. One within the
	// memory is written by the other side.
	Into [][]byte
	// Memory is where inputs and outputs are that are not copied; nil if none are.
	Memory *Memory
}

// Answer is a job's result.
type Answer struct {
	// Computed is the other side's time for the job, Waited that before it in its queue.
	Computed, Waited time.Duration
}

// encode makes the body of a hello.
func (i Identity) encode() []byte {
	text, err := json.Marshal(i)
	if err != nil { // Strings and a number.
		panic(err)
	}
	return text
}

func decodeIdentity(text []byte) (i Identity, err error) {
	if err := json.Unmarshal(text, &i); err != nil {
		return i, fmt.Errorf("the other side's identity is no JSON: %w", err)
	}
	if i.MaxRows < 0 || i.MaxRows > maxRows {
		return i, fmt.Errorf("max_rows is %d: it must be from 0 to %d", i.MaxRows, maxRows)
	}
	return i, nil
}
