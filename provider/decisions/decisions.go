// Package decisions remembers what the provider has decided of late about each function, and why. Whoever
// decides gives the reason with its figures as data (Fields), and Sentence makes the English of it. This
// package decides nothing, stores nothing on disk, and is not on the request path. Begin with Log.
package decisions

import (
	"encoding/json"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// Kind is what was decided or happened.
type Kind string

// The kinds of decisions.
const (
	Start  Kind = "start"
	Stop   Kind = "stop"
	Resize Kind = "resize"
	Park   Kind = "park"
	Unpark Kind = "unpark"
	// Pair gives a shadow another body.
	Pair Kind = "pair"
	// Steer changes the level of capacity by the share of missed objectives.
	Steer Kind = "steer"
	// Correct is a change of a model's predicted times by those of its executions. Learn is that a request has taught
	// the sizes of its inputs.
	Correct Kind = "correct"
	Learn   Kind = "learn"
	// Relieve moves an instance, or replaces it, because something else slows it down.
	Relieve Kind = "relieve"
	// Replace stops an instance that answers wrongly or not at all, Exit is one that ended by itself.
	// Unhealthy gets no requests while others can take them; Healthy gets them again.
	Replace   Kind = "replace"
	Exit      Kind = "exit"
	Unhealthy Kind = "unhealthy"
	Healthy   Kind = "healthy"
	// Revision is the hand-over of requests from one revision to the next.
	Revision Kind = "revision"
	// Rollout is a step of a gradual rollout, or its end.
	Rollout Kind = "rollout"
	// Problem came, Solved went.
	Problem Kind = "problem"
	Solved  Kind = "solved"
	// Deploy is a first deployment, Update a later one. Scale sets the number of instances to keep.
	Deploy Kind = "deploy"
	Update Kind = "update"
	Delete Kind = "delete"
	Scale  Kind = "scale"
	// Reject is a deployment that was refused.
	Reject Kind = "reject"
	// Node is a change of the number of nodes that are wanted. It belongs to no function.
	Node Kind = "node"
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{
		Start, Stop, Resize, Park, Unpark, Pair, Steer, Correct, Learn, Relieve, Replace, Exit, Unhealthy, Healthy, Revision, Rollout, Problem, Solved,
		Deploy, Update, Delete, Scale, Reject, Node,
	}
}

// Fields are the figures of a decision. Those that a kind does not have are zero.
type Fields struct {
	// Why is the cause, one of [scaling.Why] or a clause for people.
	Why string `json:"why,omitempty"`
	// Instances is the number of instances that it is about, all of this batch, CPU quota in millicores, share of
	// a GPU in percent and memory in bytes, and on this node. FromCPU
	// is the quota before, and FromInstances the number.
	Instances     int    `json:"instances,omitempty"`
	FromInstances int    `json:"from_instances,omitempty"`
	Batch         int    `json:"batch,omitempty"`
	CPU           int    `json:"cpu_millicores,omitempty"`
	FromCPU       int    `json:"from_cpu_millicores,omitempty"`
	GPU           int    `json:"gpu_pct,omitempty"`
	Memory        int64  `json:"memory_bytes,omitempty"`
	Node          string `json:"node,omitempty"`
	// Instance is the ID, if it is one instance. Variant names what it loads, "" for the only model. Shadow: it
	// holds a part of the model and helps another.
	Instance string `json:"instance,omitempty"`
	Variant  string `json:"variant,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	// Program: the instances are of an ordinary function, which has no batches.
	Program bool `json:"program,omitempty"`
	// Load is the measured load, Needed that with headroom, and Carries what the instances carried before, in
	// requests/s. Waiting counts requests that waited, InFlight those on instances.
	Load     float64 `json:"load_per_s,omitempty"`
	Needed   float64 `json:"needed_per_s,omitempty"`
	Carries  float64 `json:"carries_per_s,omitempty"`
	Waiting  int     `json:"waiting,omitempty"`
	InFlight int     `json:"in_flight,omitempty"`
	// Idle is how long an instance had executed nothing, Took how long a problem lasted; both in seconds.
	Idle float64 `json:"idle_s,omitempty"`
	Took float64 `json:"took_s,omitempty"`
	// For is the function that needs the room.
	For string `json:"for_function,omitempty"`
	// Image, Revision and Previous are those of a deployment. Replicas is the number of instances to keep.
	Image    string  `json:"image,omitempty"`
	Revision uint64  `json:"revision,omitempty"`
	Previous uint64  `json:"previous_revision,omitempty"`
	Replicas *uint64 `json:"replicas,omitempty"`
	// Level is the multiple of the load for which there must be room.
	Level float64 `json:"level,omitempty"`
	// Ratio is how many times as long as predicted full batches take.
	Ratio float64 `json:"ratio,omitempty"`
	// Wanted and Present are numbers of nodes.
	Wanted  int `json:"nodes_wanted,omitempty"`
	Present int `json:"nodes_present,omitempty"`
	// Detail is a sentence of another part of the program: a problem, or how an instance ended. Error is why
	// the decision could not be carried out.
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

// OfConfig sets what an instance holds.
func (f *Fields) OfConfig(c cluster.Config) {
	f.Batch, f.CPU, f.GPU, f.Memory = c.Batch, c.CPU, c.GPU, c.Memory
}

// Because sets the engine's reason.
func (f *Fields) Because(r scaling.Reason) {
	f.Why, f.Load, f.Needed, f.Carries = string(r.Why), r.Load, r.Needed, r.Carries
	f.Waiting, f.Idle, f.For = r.Waiting, r.Idle.Seconds(), r.For
}

// Time is a time that JSON has in seconds since 1970, to the millisecond.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(t.UnixMilli()) / 1000)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(text []byte) error {
	var seconds float64
	err := json.Unmarshal(text, &seconds)
	t.Time = time.UnixMilli(int64(seconds*1000 + 0.5))
	return err
}

// Decision is an entry of a [Log].
type Decision struct {
	// ID rises with each entry while the provider runs.
	ID uint64 `json:"id"`
	At Time   `json:"at"`
	// Function and Namespace are "" for a decision that is about no function.
	Function  string `json:"function"`
	Namespace string `json:"namespace"`
	Kind      Kind   `json:"kind"`
	// Text is the sentence.
	Text string `json:"text"`
	// Count is the number of equal decisions in a row that this entry stands for, 0 for one. FirstAt is the time
	// of the first. Replaces is the ID under which the entry was known before the latest of them.
	Count    int    `json:"count,omitempty"`
	FirstAt  *Time  `json:"first_at,omitempty"`
	Replaces uint64 `json:"replaces,omitempty"`
	Fields   Fields `json:"fields"`
	// Members are the functions, by full name, that shared the instances when this was decided about them. nil:
	// it is about a function's own instances.
	Members []string `json:"members,omitempty"`

	origin origin
}

// origin is where an entry comes from: a run of another program and its ID there, zero for the log's own.
type origin struct {
	run string
	id  uint64
}
