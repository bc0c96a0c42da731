package scaling

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Running is what the engine must know of an instance that exists.
type Running struct {
	ID   cluster.InstanceID
	Node string
	// Artefact names what it has loaded. It gets no other while it runs.
	Artefact string
	Config   cluster.Config
	// Largest is the largest batch that it can take if its CPU quota allows more than
	// Config has; a smaller number than that is none.
	Largest int
	// Exec and Mean are the predicted times of a full batch under Config, as
	// in [capacity.Candidate].
	Exec, Mean time.Duration
	Revision   uint64
	// State: Starting instances count as capacity, so that they are not
	// started twice; Stopping and Exited ones count for nothing.
	State cluster.State
	// IdleSince is since when the instance has executed nothing; zero while
	// it holds a request.
	IdleSince time.Time
	// Parked: it holds its memory only, and has to take up the share that Config
	// says before it serves anything. A parked instance is Ready.
	Parked bool
	// Fixed: its CPU quota could not be changed, so it is planned with as it is.
	Fixed bool
}

// with is what the instance runs with.
func (in *Running) with() capacity.Candidate {
	return capacity.Candidate{Artefact: in.Artefact, Config: in.Config, Exec: in.Exec, Mean: in.Mean}
}

// Holds is what the instance takes of its node.
func (in *Running) Holds() cluster.Resources {
	if in.Parked {
		return in.Config.Parked()
	}
	return in.Config.Resources
}

// Function is what the engine must know of a function.
type Function struct {
	Name string
	// Revision is the one that instances should have; those of an older one
	// are replaced.
	Revision uint64
	// SLO is t_slo; 0 means none.
	SLO time.Duration
	// Percentile is how many % of the requests are to be within the SLO; 0 means
	// [staffing.StaffingPercentile]. Where functions are planned jointly, the more it asks for
	// the more room is kept for requests that come at the same time.
	Percentile float64
	Queue      capacity.Queue
	Configs    []capacity.Candidate
	// Instances are all of the function's, the ones that earlier plans
	// started included.
	Instances []Running
	// Rate is the measured load in requests per second, Waiting how many
	// requests are in no instance yet.
	Rate    float64
	Waiting int
	// Level is by how much more than the measured load there must be room for, as
	// requests miss the objective ([steering.Loop]); below 1 it is 1. Quotas are raised
	// and instances started for it, none is exchanged.
	Level float64
	// Weight is how much the function weighs beside others where all together ask for
	// more than there is; 0 is 1. Only functions that are planned jointly are weighed.
	Weight float64
	// Min and Max bound the instances of the current revision; a Max of 0
	// means no bound. While a revision is replaced, those of the older one
	// come on top.
	Min, Max int
	// ScaleToZero lets a function without requests have no instance (but not
	// less than Min). Without, it always has one.
	ScaleToZero bool
	// Nodes are the names of those on which its instances may start, in any
	// order; nil means any node, and an empty list none. It bounds what is
	// started, not what runs.
	Nodes []string
	// PreWarmAt and RetireAt are the cold-start policy's word (INFless §3.5,
	// coldstart.Decide). An idle function is retired from RetireAt on; if that
	// is zero, never. It gets an instance without a request while
	// PreWarmAt ≤ now < RetireAt, if PreWarmAt is not zero.
	PreWarmAt, RetireAt time.Time
	// ParkAt is the same policy's word on what an idle function holds: from then
	// on memory only, but for the instances that must be; if zero, all that its
	// instances were given.
	ParkAt time.Time
}

// Plan is what is to be done now. The stops come first: a start may need the
// room of instances that are to be stopped.
type Plan struct {
	Stop  []Stop
	Start []Start
	// Resize changes CPU quotas of running instances at once.
	Resize []Resize
	// Park has idle instances give back their CPU and GPU share; what that frees
	// is there for later plans. Unpark has parked ones take up a share again.
	Park     []Park
	Unpark   []Unpark
	Unplaced []Unplaced
	// Carried is what the instances of functions with a load can take by the times that
	// are planned with, what the plan starts included.
	Carried []Carried
}

// Carried is R_max of a function (§3.2) over its measured load.
type Carried struct {
	Function string
	Over     float64
}

// Start is an instance to be started.
type Start struct {
	Function string
	Revision uint64
	// Artefact names what it is to load.
	Artefact string
	Config   cluster.Config
	// Exec and Mean are the candidate's.
	Exec, Mean time.Duration
	Node       string
	// Timeout is the candidate's.
	Timeout time.Duration
	// After are instances on the node, stopped by the same plan, that must
	// be gone before this one starts; most often there are none.
	After []cluster.InstanceID
}

// Resize gives an instance another CPU quota while it runs: a burst is served
// from the node's free CPU before a new instance could be there. Its batches may become
// larger or smaller with it, up to [Running.Largest]; GPU share and memory stay.
type Resize struct {
	Function string
	ID       cluster.InstanceID
	Config   cluster.Config
	// Exec and Mean are the predicted times of a full batch under Config, as
	// in [capacity.Candidate].
	Exec, Mean time.Duration
}

// Park is an instance that gives back its CPU and GPU share and keeps its memory, if
// it still has nothing to do.
type Park struct {
	Function string
	ID       cluster.InstanceID
}

// Unpark is a parked instance that takes up a share and serves again. It takes no
// longer than a Resize.
type Unpark struct {
	Resize
	// After are instances on the node, stopped by the same plan, that must be gone
	// before; most often there are none.
	After []cluster.InstanceID
}

// Stop is an instance to be stopped, once it has finished what it holds.
type Stop struct {
	Function string
	ID       cluster.InstanceID
	Why      Why
}

// Why says why an instance is stopped; it is fit for a log line and for a
// metric's label.
type Why string

// The reasons to stop an instance.
const (
	// Idle: the function had no request for its keep-alive time.
	Idle Why = "idle"
	// Surplus: the others carry the load (§3.2, case (iii)).
	Surplus Why = "surplus"
	// OverMax: the function has more instances than it may have.
	OverMax Why = "over-max"
	// Superseded: it is of an older revision.
	Superseded Why = "superseded"
	// Evicted: a function without any instance needs the room.
	Evicted Why = "evicted"
	// Rearranged: fewer, larger instances carry more in the same room.
	Rearranged Why = "rearranged"
)

// Unplaced is load for which there is no instance.
type Unplaced struct {
	Function string
	// RPS is the load in requests per second.
	RPS    float64
	Reason placing.Reason
	// Explanation is a sentence for people.
	Explanation string
}
