package scaling

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Running is what the engine must know of an instance that exists.
type Running struct {
	ID cluster.InstanceID
	// Node is where it is. Nodes are those of a set's members, by member, if they are on
	// several; Node is then the first one's.
	Node  string
	Nodes []string
	// Device is the GPU of which it has a share, by UUID; "" if it has none.
	Device string
	// Artefact names what the instance has loaded. That does not change while it runs.
	Artefact string
	Config   cluster.Config
	// Largest is the largest batch that the instance can take with a higher CPU quota.
	// A value below Config.Batch means Config.Batch.
	Largest int
	// Exec and Mean are the predicted times of a full batch under Config, as
	// in [capacity.Candidate].
	Exec, Mean time.Duration
	Revision   uint64
	// State is the instance's. Starting instances count as capacity, so they are not
	// started twice. Stopping and Exited ones do not count.
	State cluster.State
	// IdleSince is the time since which the instance has executed nothing. It is zero
	// while it holds a request.
	IdleSince time.Time
	// Loading is the time from the instance's start until it was ready, without what it
	// waited before for others' room; 0 if unknown.
	Loading time.Duration
	// Busy is the time of all its executions, without queueing, and Profiled the time
	// that was predicted for them without other instances on the node; both 0 if unknown.
	Busy, Profiled time.Duration
	// Parked: the instance holds its memory only. It must take the share in Config
	// before it serves again. A parked instance is Ready.
	Parked bool
	// Fixed: the CPU quota could not be changed, so plans leave it as it is.
	Fixed bool
	// Role is what it does. Paired: a body can have shadows, which is so from its start or not at
	// all. A shadow holds Part of the model and helps the instance Body.
	Role   cluster.Role
	Paired bool
	Part   string
	Body   cluster.InstanceID
	// pairing is how a body executes with its shadow, nil if it has none.
	pairing *Pairing
}

// RunningOf returns an instance as the engine sees it. leaving: it is to stop or answers nothing now,
// so its room is taken and it carries no load. The caller adds its times, and what its executions show.
func RunningOf(in *cluster.Instance, leaving bool) Running {
	r := Running{
		ID: in.ID, Node: in.Node, Nodes: in.Nodes, Device: in.Device(), Artefact: in.Artefact.Name, Config: in.Config, Revision: in.Revision,
		State: in.State, Parked: in.Parked, Role: in.Role, Paired: in.Paired, Part: in.Part, Body: in.Body,
	}
	if leaving {
		r.State = cluster.Stopping
	}
	return r
}

// Replace makes plans start another instance and then stop this one, as one of an earlier revision.
func (in *Running) Replace() { in.Revision = 0 }

// with is the candidate that the instance runs.
func (in *Running) with() capacity.Candidate {
	return capacity.Candidate{Artefact: in.Artefact, Config: in.Config, Exec: in.Exec, Mean: in.Mean}
}

// Holds is what the instance takes from its node, or from its nodes together.
func (in *Running) Holds() cluster.Resources {
	if in.Parked {
		return in.Config.Parked()
	}
	return in.Config.Resources
}

// Function is what the engine must know of a function.
type Function struct {
	Name string
	// Revision is the current revision. Instances of an older one are replaced.
	Revision uint64
	// SLO is t_slo; 0 means none.
	SLO time.Duration
	// Percentile is the part in % of the requests that must be within the SLO; 0 means
	// [capacity.StaffingPercentile]. For jointly planned functions, a higher one keeps
	// more room for requests that come at the same time.
	Percentile float64
	Queue      capacity.Queue
	Configs    []capacity.Candidate
	// Instances has all of the function's instances, including those that earlier plans
	// started.
	Instances []Running
	// Shadows has all of its shadows, in the same way. They carry load only by their bodies,
	// and do not count as instances for Min and Max.
	Shadows []Running
	// Pairings are the ways to help its instances with shadows; none if it may have none.
	// SharedWeights: the instances of a node map the same weights. ShadowsBeside: a shadow takes its part of
	// those, so it starts only on a node with a whole instance.
	Pairings                     []Pairing
	SharedWeights, ShadowsBeside bool
	// NoShadows: no shadow may start now, because one has just failed. Those that there are stay.
	NoShadows bool
	// Classes are the parts of the load that not all artefacts may answer; none if all may
	// answer all of it.
	Classes []Class
	// Accurate prefers the most accurate artefacts for which the nodes have room to the
	// cheapest ones. It works only for jointly planned functions.
	Accurate bool
	// Rate is the measured load in requests per second, and that of [Backlog]. Waiting is the number of
	// requests that are in no instance yet; Patient are those of them that count in Rate only, because
	// they may wait for longer than the SLO.
	Rate             float64
	Waiting, Patient int
	// ColdWait is how long, beyond the SLO, a request that finds no ready instance may
	// wait. With 0, such requests do not wait for other functions' instances to live as
	// long as Settings.EvictLoads says.
	ColdWait time.Duration
	// Level is the multiple of the measured load for which there must be room because
	// requests miss the objective ([steering.Loop]). Plans raise quotas and start instances
	// for it, but do not exchange any. 0 counts as 1.
	Level float64
	// Credit is the part of a release that turns out wrong that the function can afford, from 0 to 1
	// ([steering.Loop.Credit]). The more there is, the sooner plans release what the load no longer needs.
	Credit float64
	// Weight is the function's weight if all functions together ask for more than there
	// is; 0 means 1. Only jointly planned functions are weighed.
	Weight float64
	// Min and Max bound the instances of the current revision; a Max of 0
	// means no bound. While a revision is replaced, those of the older one
	// come on top.
	Min, Max int
	// ScaleToZero lets a function without requests have no instance, but not fewer than
	// Min. Otherwise it always has at least one.
	ScaleToZero bool
	// Nodes has the names of the nodes on which instances may start, in any order. nil
	// means any node, and an empty list means none. Running instances stay where they
	// are.
	Nodes []string
	// Tenant says which devices may serve it.
	Tenant cluster.Tenant
	// PreWarmAt and RetireAt come from the cold-start policy (INFless §3.5,
	// coldstart.Decide). An idle function is retired from RetireAt on, or never if that
	// is zero. It gets an instance without a request while PreWarmAt ≤ now < RetireAt,
	// if PreWarmAt is not zero.
	PreWarmAt, RetireAt time.Time
	// RetireStated: RetireAt is what the user says, and holds however long loading takes.
	RetireStated bool
	// ParkAt comes from the same policy. From then on the instances of an idle function
	// hold memory only, except for the minimum number. If it is zero, they keep their
	// shares.
	ParkAt time.Time
}

// Plan says what to do now. Do the stops first: a start may need the room of instances
// that are stopped.
type Plan struct {
	Stop  []Stop
	Start []Start
	// Resize changes CPU quotas of running instances at once.
	Resize []Resize
	// Park lets idle instances give back their CPU and GPU share, for later plans.
	// Unpark lets parked ones take a share again.
	Park   []Park
	Unpark []Unpark
	// Pair gives shadows that have lost their bodies to others.
	Pair     []Pair
	Unplaced []Unplaced
	// Carried has the capacity of each function with a load, by the times that the plan
	// uses and including the instances that it starts.
	Carried []Carried
}

// Carried is R_max of a function (§3.2) over its measured load.
type Carried struct {
	Function string
	Over     float64
	// Rate is what they carry in requests/s.
	Rate float64
}

// Start starts an instance.
type Start struct {
	Function string
	Revision uint64
	// Artefact names what the instance loads.
	Artefact string
	Config   cluster.Config
	// Exec and Mean are the candidate's.
	Exec, Mean time.Duration
	// Node is where it starts. Nodes are those of a set's members, by member, if they are on
	// several; Node is then the first one's, the master's.
	Node  string
	Nodes []string
	// Device is the GPU of which it gets a share, by UUID; "" if it gets none.
	Device string
	// Timeout is the candidate's.
	Timeout time.Duration
	// After has the instances on its nodes that the same plan stops and that must be
	// gone before this one starts. Mostly there are none.
	After []cluster.InstanceID
	// Succeeds is one of After that may serve until this one is ready, "" for none: the function has no other that
	// serves. A driver that can do that starts this one with Begins, in millicores, and no start waits for the other. It
	// stops the other when this one is ready, and then gives this one the rest of its CPU.
	Succeeds cluster.InstanceID
	Begins   int
	// Role is what it does. A shadow holds Part of the model and helps the instance Body; it has
	// no Exec of its own.
	Role cluster.Role
	Part string
	Body cluster.InstanceID
	Reason
}

// Resize changes an instance's CPU quota while it runs: the node's free CPU serves a
// burst before a new instance could start. Its batch size may change with the quota, up
// to [Running.Largest]. GPU share and memory stay.
type Resize struct {
	Function string
	ID       cluster.InstanceID
	Config   cluster.Config
	// Exec and Mean are the predicted times of a full batch under Config, as
	// in [capacity.Candidate].
	Exec, Mean time.Duration
	Reason
}

// Park lets an instance give back its CPU and GPU share and keep its memory, if it is
// still idle.
type Park struct {
	Function string
	ID       cluster.InstanceID
	Reason
}

// Unpark lets a parked instance take a share and serve again. It takes no longer than a
// Resize.
type Unpark struct {
	Resize
	// After has the instances on the node that the same plan stops and that must be
	// gone before. Mostly there are none.
	After []cluster.InstanceID
}

// Stop stops an instance once it has finished its requests.
type Stop struct {
	Function string
	ID       cluster.InstanceID
	Reason
}

// Unplaced is load for which there is no instance.
type Unplaced struct {
	Function string
	// RPS is the load in requests per second.
	RPS    float64
	Reason placing.Reason
	// Explanation is a sentence for people.
	Explanation string
}

// Class is a part of a function's requests that only some of its artefacts may answer: those
// that ask for an accuracy (INFaaS §3.2), or for one variant.
type Class struct {
	// Artefacts has the names of those that may answer, at least one, in any order.
	Artefacts []string
	// Part is the part of the function's load, from 0 to 1. Waiting is the number of its
	// requests that are in no instance yet.
	Part    float64
	Waiting int
}

// Pairing is a way to help an instance: a shadow holds a part of the model and computes rows of the
// instance's batches there (AsyFunc §2.3, §4.3). The room of the paper chooses the part.
type Pairing struct {
	// Artefact and CPU, in millicores, are the body's.
	Artefact string
	CPU      int
	// Part is what the shadow holds, Config the shadow's own.
	Part   string
	Config cluster.Config
	// Pair is how the body executes with the shadow, by batch. Its Config.Concurrency is 2 if the
	// shadow begins the next batch meanwhile.
	Pair []capacity.Candidate
	// Whole is what a whole instance of the artefact takes, Shadow what a shadow does.
	Whole, Shadow Footprint
}

// best is the range of an instance with a shadow: the best of the pair's batches that are in time. A
// batch that the pair does not shorten is the body's alone, as all are without a pairing.
func (x *Pairing) best(alone capacity.Range, of func(capacity.Candidate) capacity.Range) capacity.Range {
	if x == nil {
		return alone
	}
	for _, c := range x.Pair {
		if r := of(c); r.Up > alone.Up {
			alone = r
		}
	}
	return alone
}

// Rates are the requests per second that an instance serves alone and with a shadow, as plans judge
// them. f has the objective, the percentile, the queue and the configs, and its Rate is the load. A
// part that is chosen by another measure may gain nothing by this one: plans then start no shadow.
func (x *Pairing) Rates(o capacity.Options, f *Function, alone capacity.Candidate) (single, pair float64) {
	var r capacity.Recall
	r.About(o, f.SLO, f.Percentile, f.Queue, f.Configs)
	before := r.Range(alone, f.Rate)
	return before.Up, x.best(before, func(c capacity.Candidate) capacity.Range { return r.InTime(c, f.Rate) }).Up
}

// Pair gives a shadow that has lost its body to another.
type Pair struct {
	Function string
	// ID is the shadow's.
	ID, Body cluster.InstanceID
	Reason
}

// Shown is what the pairs of a kind have shown of their times.
type Shown struct {
	// Slower is how many times as long as predicted their full batches take on average, 0 if none was seen.
	// Planned is the one that plans use.
	Slower, Planned float64
	// Seen is when the last full batch was.
	Seen time.Time
}

// Footprint is what an instance really takes, which is less than what its node keeps for it.
type Footprint struct {
	// Own is its memory in bytes without weights, Weights that of those.
	Own, Weights int64
	// Loading is the time from the order until it serves.
	Loading time.Duration
}
