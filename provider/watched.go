package provider

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Watched is what a controller shows of a function for GET /system/stats, beyond its status.
type Watched struct {
	Status
	// Load is the measured load and Carries what the instances carry, those that start included, in requests per
	// second; 0 if they are not known.
	Load, Carries float64
	// Waiting is the number of requests that no instance has yet.
	Waiting int
	// Revision is the revision that answers, 0 if none does.
	Revision  uint64
	Instances []WatchedInstance
	// Lack says why no further instance starts, "" if one starts or none is needed.
	Lack Lack
	// Least is the shortest objective that the model can keep on the largest share, 0 if that is not known.
	Least time.Duration
	// Hopeless: the problem keeps every request from being answered.
	Hopeless bool
}

// Lack is a reason why a function has too few instances.
type Lack string

// The reasons.
const (
	// LackRoom: no node has room. LackNode: the function may run on none.
	LackRoom Lack = "room"
	LackNode Lack = "node"
	// LackLimit: it has as many instances as it may have.
	LackLimit Lack = "limit"
	// LackSpeed: no config meets the objective.
	LackSpeed Lack = "speed"
)

// WatchedInstance is one instance of a function.
type WatchedInstance struct {
	cluster.Instance
	// Holds is what it takes of its node.
	Holds cluster.Resources
	// Leaving: it gets no new requests. Parked is that of the instance.
	Leaving bool
	// Carries is its part of what the instances carry together or, without a load, the highest rate at which it meets the
	// objective, in requests per second.
	Carries float64
	// Seen is the mean time that its Executions on its present share took, 0 if there were none. Size is the mean
	// number of requests in them, and Predicted the mean of what was predicted for each, without margin. Without
	// executions they are those of a full batch. Planned is the mean of the times with which the plan counts for them:
	// corrected, and with margin.
	Seen, Predicted, Planned time.Duration
	Size                     float64
	Executions               uint64
}

// WatchedController is a [Controller] that shows more of its functions. Watch returns false for a function that it does
// not know. It is called once a second for each function that is busy.
type WatchedController interface {
	Watch(name string) (Watched, bool)
}

// WhatIf is what the planner would do for a function at another objective or load.
type WhatIf struct {
	// Instances are what it would start if the function had none, with Carries, Predicted and Holds.
	Instances []WatchedInstance
	// Carries is their capacity in requests per second, Headroom the part of the load that is planned for on top.
	Carries, Headroom float64
	// Lack and Why say why there are too few, both "" if there are enough.
	Lack Lack
	Why  string
}

// PlanningController is a [Controller] with a planner. Plan says what it would do for a function with an objective
// and a load in requests per second, on the nodes as they are, and changes nothing. Its error is a web.HTTPError if the
// function has no objective or its times are not known yet.
type PlanningController interface {
	Plan(ctx context.Context, name string, slo time.Duration, rate float64) (WhatIf, error)
}
