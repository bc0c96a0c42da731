// Package gillis is the room of Gillis (ICDCS 2021): it cuts a model over several instances, a master and its
// workers, which answer together as a set. The core starts, sizes and stops sets and finds out whether one
// meets an objective; the room plans where to cut, cuts, and serves the parts.
//
// Begin reading at package partition for the plans, at partition.go for "model partition", and at member.go
// for an instance that is a member of a set.
package gillis

import (
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/plug"
	"github.com/faas-infer/faas-infer/papers/gillis/member"
	"github.com/faas-infer/faas-infer/papers/gillis/plans"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
)

func init() {
	bundles.RegisterCutter(func(o bundles.CutterOptions) bundles.Cutter { return plans.New(o) })
	children.RegisterParts(member.Use)
	instances.Register(memberRole())
	instances.RegisterPreparer(func() instances.Preparer { return new(partsPreparer) })
	plug.Command("model", newPartitionCommand)
}
