package decisions

import (
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/scaling"
)

// Each kind has a sentence with its figures and their units.
func TestSentence(t *testing.T) {
	two := uint64(2)
	on := Fields{Instances: 1, Batch: 8, CPU: 1000, Node: "node-1"}
	with := func(edit func(f *Fields)) Fields {
		f := on
		edit(&f)
		return f
	}
	why := func(w scaling.Why, edit ...func(f *Fields)) Fields {
		f := on
		f.Why, f.Load, f.Needed, f.Carries, f.Waiting = string(w), 480, 528, 390.4, 3
		for _, e := range edit {
			e(&f)
		}
		return f
	}
	said := map[Kind]bool{}
	for _, c := range []struct {
		kind Kind
		f    Fields
		want string
	}{
		{Start, why(scaling.Load, func(f *Fields) { f.Instances = 2 }), "Started 2 instances ⟨8, 1000m⟩ on node-1: the load is 480/s, which needs 528/s with headroom, and the instances carried 390/s."},
		{Start, why(scaling.Load, func(f *Fields) { f.Needed, f.GPU = 480, 25 }), "Started an instance ⟨8, 1000m, 25 %⟩ on node-1: the load is 480/s, and the instances carried 390/s."},
		{Start, why(scaling.Waiting), "Started an instance ⟨8, 1000m⟩ on node-1: 3 requests waited, and no instance was ready."},
		{Start, why(scaling.Minimum), "Started an instance ⟨8, 1000m⟩ on node-1: the function keeps this number of instances without load, too."},
		{Start, why(scaling.Forecast), "Started an instance ⟨8, 1000m⟩ on node-1: the next request is expected soon, by the times of earlier ones."},
		{Start, why(scaling.NewRevision), "Started an instance ⟨8, 1000m⟩ on node-1: the instances of the earlier revision are replaced."},
		{Start, why(scaling.Replacement), "Started an instance ⟨8, 1000m⟩ on node-1: an earlier instance is replaced."},
		{Start, why(scaling.OtherForm, func(f *Fields) { f.Variant = "int8" }), "Started an instance ⟨8, 1000m⟩ of int8 on node-1: another variant, or another share of a GPU, serves the load for less."},
		{Start, why(scaling.Load, func(f *Fields) { f.Shadow = true }), "Started a shadow ⟨8, 1000m⟩ on node-1: the load is 480/s, which needs 528/s with headroom, and the instances carried 390/s."},
		{Start, Fields{Instances: 1, Program: true, Batch: 1, Node: "node-1", Why: "the function needs 2 of them"}, "Started an instance on node-1: the function needs 2 of them."},
		{Stop, why(scaling.Idle, func(f *Fields) { f.Idle = 300 }), "Stopped an instance ⟨8, 1000m⟩ on node-1: no request for 5 min."},
		{Stop, why(scaling.Surplus, func(f *Fields) { f.Load, f.Needed = 5.04, 5.5 }), "Stopped an instance ⟨8, 1000m⟩ on node-1: less is enough, as the load is 5/s, which needs 5.5/s with headroom, and the instances carried 390/s."},
		{Stop, why(scaling.OverMax), "Stopped an instance ⟨8, 1000m⟩ on node-1: the function has more instances than com.openfaas.scale.max allows."},
		{Stop, why(scaling.Superseded), "Stopped an instance ⟨8, 1000m⟩ on node-1: the instances of the later revision, or the better ones, replace it."},
		{Stop, why(scaling.Evicted, func(f *Fields) { f.For = "g.ns" }), "Stopped an instance ⟨8, 1000m⟩ on node-1: the function g.ns has no instance and needs the room."},
		{Stop, why(scaling.Unpaired, func(f *Fields) { f.Shadow = true }), "Stopped a shadow ⟨8, 1000m⟩ on node-1: the instance that it helped is gone, or it helps no more."},
		{Stop, why(scaling.Rearranged), "Stopped an instance ⟨8, 1000m⟩ on node-1: other instances carry more in the same room; the load is 480/s, which needs 528/s with headroom, and the instances carried 390/s."},
		{Resize, why(scaling.Load, func(f *Fields) { f.FromCPU = 500 }), "Raised the CPU of an instance on node-1 from 500m to 1000m: the load is 480/s, which needs 528/s with headroom, and the instances carried 390/s."},
		{Resize, why(scaling.Surplus, func(f *Fields) { f.FromCPU, f.Load, f.Needed, f.Carries = 2000, 0.25, 0.25, 12 }), "Lowered the CPU of an instance on node-1 from 2000m to 1000m: less is enough, as the load is 0.25/s, and the instances carried 12/s."},
		{Resize, why(scaling.Load, func(f *Fields) { f.FromCPU, f.Error = 500, "no right" }), "Could not change the CPU of an instance on node-1 from 500m to 1000m: no right."},
		{Park, why(scaling.Idle, func(f *Fields) { f.Idle = 30.04 }), "Parked an instance ⟨8, 1000m⟩ on node-1, so others can use its CPU: no request for 30 s."},
		{Unpark, why(scaling.PeakLoad), "Gave CPU back to an instance ⟨8, 1000m⟩ on node-1 that was parked: the load was higher within the last minute."},
		{Unpark, why(scaling.Waiting, func(f *Fields) { f.Waiting = 1 }), "Gave CPU back to an instance ⟨8, 1000m⟩ on node-1 that was parked: 1 request waited, and no instance was ready."},
		{Pair, why(scaling.Load, func(f *Fields) { f.Shadow, f.Needed = true, 480 }), "Gave a shadow ⟨8, 1000m⟩ on node-1 to another instance: the load is 480/s, and the instances carried 390/s."},
		{Steer, Fields{Level: 1.25}, "Plans for 1.25 times the load, because more requests miss the objective than the percentile allows."},
		{Steer, Fields{Level: 1}, "Plans for the load as it is measured again, because requests meet the objective."},
		{Correct, Fields{Ratio: 1.0009}, "Corrected the predicted times."},
		{Correct, Fields{Ratio: 1.254, Variant: "int8"}, "Corrected the predicted times of int8, because full batches take up to 1.25 times as long as predicted."},
		{Learn, Fields{Detail: "x=3,4"}, "Learnt the sizes of the model's inputs from a request: x=3,4."},
		{Relieve, with(func(f *Fields) { f.Why = Moved }), "Moved an instance ⟨8, 1000m⟩ on node-1 to other cores, because something else slows it down."},
		{Relieve, on, "Replaces an instance ⟨8, 1000m⟩ on node-1 by one on another node, because something else slows it down."},
		{Replace, with(func(f *Fields) { f.Why = "it answers with errors" }), "Replaced an instance ⟨8, 1000m⟩ on node-1: it answers with errors."},
		{Exit, with(func(f *Fields) { f.Detail = "out of memory (limit 256 MiB)" }), "An instance ⟨8, 1000m⟩ on node-1 exited: out of memory (limit 256 MiB)."},
		{Unhealthy, on, "An instance ⟨8, 1000m⟩ on node-1 does not answer, or fails more than the others, so these serve in its place."},
		{Healthy, on, "An instance ⟨8, 1000m⟩ on node-1 serves again."},
		{Revision, Fields{Revision: 3, Carries: 400}, "Revision 3 answers from now on, because its instances carry 400/s."},
		{Problem, Fields{Detail: "no node has room"}, "Problem: no node has room."},
		{Rollout, Fields{Detail: "promoted revision 2", Revision: 2}, "Rollout: promoted revision 2."},
		{Solved, Fields{Detail: "no node has room", Took: 12.3}, "Solved after 12.3 s: no node has room."},
		{Deploy, Fields{Image: "mnist", Revision: 1}, "Deployed image mnist as revision 1."},
		{Update, Fields{Image: "mnist", Revision: 2, Previous: 1}, "Updated to image mnist as revision 2."},
		{Reject, Fields{Image: "mnist", Error: "there is no bundle"}, "Refused to deploy image mnist: there is no bundle."},
		{Delete, Fields{}, "Removed the function."},
		{Scale, Fields{Replicas: &two}, "Set the number of instances to keep to 2."},
		{Scale, Fields{Program: true, FromInstances: 1, Instances: 3, Why: "40 requests are in progress and 2 wait"}, "Scaled from 1 to 3 instances: 40 requests are in progress and 2 wait."},
		{Scale, Fields{Program: true, FromInstances: 1, Why: string(scaling.Idle)}, "Scaled down from 1 to 0 instances: the function has no requests."},
		{Node, Fields{Wanted: 3, Present: 2, Why: "2 functions have no room"}, "3 nodes are wanted, 2 there: 2 functions have no room."},
	} {
		if got := Sentence(c.kind, c.f); got != c.want {
			t.Errorf("%s:\n %s\nwant\n %s", c.kind, got, c.want)
		}
		said[c.kind] = true
	}
	for _, kind := range Kinds() {
		if !said[kind] {
			t.Errorf("no sentence of kind %q is tried", kind)
		}
		if text := Sentence(kind, Fields{}); len(text) < 10 || !strings.HasSuffix(text, ".") {
			t.Errorf("%s without fields: %q", kind, text)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(Kinds())))) != len(Kinds()) {
		t.Error("two kinds are equal")
	}
}
