package peer

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// Load is the load that one replica of the provider has seen.
type Load struct {
	// Boot identifies the replica's process. Its counters begin at 0 with each process.
	Boot string `json:"boot"`
	// Functions holds the functions that had requests, by full name: all if it is Whole,
	// otherwise those whose load has changed since the version that the reader sent. Version is
	// what the reader sends next time.
	Functions map[string]FunctionLoad `json:"functions,omitempty"`
	Whole     bool                    `json:"whole,omitempty"`
	Version   uint64                  `json:"version,omitempty"`
	// Executed are the latest batches that were executed since the reader last asked.
	// Next is the number of all batches so far; the reader sends it as since next time.
	Executed []Executed `json:"executed,omitempty"`
	Next     uint64     `json:"next"`
	// Lost maps instances that broke off an exchange to the reason.
	Lost map[cluster.InstanceID]string `json:"lost,omitempty"`
	// At is when the reader received it, on the reader's clock.
	At time.Time `json:"-"`
}

// FunctionLoad is the load of one function that one replica has seen.
type FunctionLoad struct {
	// Arrivals counts the requests that this replica itself has dispatched or queued.
	// Cold counts those of them that found no ready instance.
	Arrivals uint64 `json:"arrivals"`
	Cold     uint64 `json:"cold,omitempty"`
	// ExtraRows is the counter of dispatch.Stats.
	ExtraRows uint64 `json:"extraRows,omitempty"`
	// InTime, Late, Refused and Slow are the counters of dispatch.Stats.
	InTime  uint64 `json:"inTime,omitempty"`
	Late    uint64 `json:"late,omitempty"`
	Refused uint64 `json:"refused,omitempty"`
	Slow    uint64 `json:"slow,omitempty"`
	// Patient and PatientWaiting are the counters of dispatch.Stats.
	Patient        uint64 `json:"patient,omitempty"`
	PatientWaiting int    `json:"patientWaiting,omitempty"`
	// Waiting is the number of requests in the queue, InFlight the number on instances.
	Waiting  int `json:"waiting,omitempty"`
	InFlight int `json:"inFlight,omitempty"`
	// Classes are the counters by class of requests, if the function has several artefacts.
	Classes []dispatch.ClassStats `json:"classes,omitempty"`
	// Idle holds, for each instance that this replica has used, how many milliseconds it
	// has had no request from this replica; Busy while it has one.
	Idle map[cluster.InstanceID]int64 `json:"idle,omitempty"`
	// at is when the reader received it.
	at time.Time
}

// Busy is the Idle value of an instance that executes a request.
const Busy = -1

// Executed is a batch that an instance has executed.
type Executed struct {
	Function string             `json:"f"`
	Instance cluster.InstanceID `json:"i"`
	// Size is the number of requests in it, Exec how long the exchange took, and Beside the
	// CPU time that the instance used outside the engine.
	Size   int           `json:"n"`
	Exec   time.Duration `json:"t"`
	Beside time.Duration `json:"b,omitempty"`
	// Elements is the mean number of elements of a request's row, 0 if all rows have one size.
	Elements int64 `json:"e,omitempty"`
}
