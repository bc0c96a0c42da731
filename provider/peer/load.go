package peer

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Load is what one replica of the provider has seen.
type Load struct {
	// Boot names the replica's process. Its counters begin with it.
	Boot string `json:"boot"`
	// Functions are those of which anything was seen, by full name.
	Functions map[string]FunctionLoad `json:"functions,omitempty"`
	// Executed are the latest batches that were executed since the reader last
	// asked, all of which have been up to Next.
	Executed []Executed `json:"executed,omitempty"`
	Next     uint64     `json:"next"`
	// Lost are instances that broke off an exchange, with the reason.
	Lost map[cluster.InstanceID]string `json:"lost,omitempty"`
	// At is when it came, on the reader's clock.
	At time.Time `json:"-"`
}

// FunctionLoad is what one replica has seen of one function.
type FunctionLoad struct {
	// Arrivals counts the requests that this replica dispatched itself, or keeps
	// waiting; Cold those of them that found no ready instance.
	Arrivals uint64 `json:"arrivals"`
	Cold     uint64 `json:"cold,omitempty"`
	// InTime, Late and Refused count what became of requests, as dispatch.Stats.
	InTime  uint64 `json:"inTime,omitempty"`
	Late    uint64 `json:"late,omitempty"`
	Refused uint64 `json:"refused,omitempty"`
	// Waiting requests are in no instance yet, InFlight ones are in some.
	Waiting  int `json:"waiting,omitempty"`
	InFlight int `json:"inFlight,omitempty"`
	// Idle is for how many milliseconds each instance that this replica has used
	// has had nothing from it to do; Busy while it has.
	Idle map[cluster.InstanceID]int64 `json:"idle,omitempty"`
}

// Busy stands for an instance that executes something.
const Busy = -1

// Executed is a batch that an instance has executed.
type Executed struct {
	Function string             `json:"f"`
	Instance cluster.InstanceID `json:"i"`
	// Size is the requests in it, Exec how long the exchange took, and Beside the CPU time
	// that the instance used beside the engine.
	Size   int           `json:"n"`
	Exec   time.Duration `json:"t"`
	Beside time.Duration `json:"b,omitempty"`
}
