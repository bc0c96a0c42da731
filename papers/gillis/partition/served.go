package partition

import (
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
)

// Overhead is what a member needs in bytes besides its weights and tensors: the engine's library, Go's
// heap, bodies.
const Overhead = 96 << 20

// Served is a plan as the provider serves it, and the content of a file *.plan.json.
type Served struct {
	// Name is unique among the plans of a model.
	Name string    `json:"name"`
	Plan *cut.Plan `json:"plan"`
	// Source is the path of the model that is cut.
	Source string `json:"source"`
	// MemberMemory is what a member needs in bytes for the largest batch of the profile.
	MemberMemory int64 `json:"member_memory"`
	// Concurrency is the number of batches that the members compute at the same time.
	Concurrency int `json:"concurrency"`
	// Profile has the predicted times of the set.
	Profile *profiler.Profile `json:"profile"`
}
