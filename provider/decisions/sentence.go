package decisions

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/scaling"
)

// Sentence says in plain English what was decided and why.
func Sentence(kind Kind, f Fields) string {
	var text string
	switch kind {
	case Start:
		text = because("Started "+instances(f), f)
	case Stop:
		text = because("Stopped "+instances(f), f)
	case Resize:
		text = resized(f)
	case Park:
		text = because("Parked "+instances(f)+", so others can use its "+processors(f), f)
		if f.Error != "" {
			text = "Could not park " + instances(f) + ", which keeps its " + processors(f) + ": " + f.Error
		}
	case Unpark:
		text = because("Gave "+processors(f)+" back to "+instances(f)+" that was parked", f)
		if f.Error != "" {
			text = "Could not give " + processors(f) + " back to " + instances(f) + " that was parked: " + f.Error
		}
	case Pair:
		text = because("Gave "+instances(f)+" to another instance", f)
	case Steer:
		text = steered(f)
	case Correct:
		if text = "Corrected the predicted times"; f.Variant != "" {
			text += " of " + f.Variant
		}
		if f.Ratio > 0 && math.Abs(f.Ratio-1) >= 0.005 { // Otherwise it reads as 1 times as long.
			text += fmt.Sprintf(", because full batches take up to %.3g times as long as predicted", f.Ratio)
		}
	case Learn:
		text = "Learnt the sizes of the model's inputs from a request: " + f.Detail
	case Relieve:
		text = relieved(f)
	case Replace:
		text = because("Replaced "+instances(f), f)
	case Exit:
		text = capital(instances(f)) + " exited"
		if f.Detail != "" {
			text += ": " + f.Detail
		}
	case Unhealthy:
		text = capital(instances(f)) + " does not answer, or fails more than the others, so these serve in its place"
	case Healthy:
		text = capital(instances(f)) + " serves again"
	case Revision:
		text = fmt.Sprintf("Revision %d answers from now on", f.Revision)
		if f.Carries > 0 {
			text += ", because its instances carry " + perSecond(f.Carries)
		}
	case Rollout:
		text = "Rollout: " + f.Detail
	case Problem:
		text = "Problem: " + f.Detail
	case Solved:
		text = "Solved after " + seconds(f.Took) + ": " + f.Detail
	case Deploy:
		text = fmt.Sprintf("Deployed image %s as revision %d", f.Image, f.Revision)
	case Update:
		text = fmt.Sprintf("Updated to image %s as revision %d", f.Image, f.Revision)
	case Reject:
		text = fmt.Sprintf("Refused to deploy image %s: %s", f.Image, f.Error)
	case Delete:
		text = "Removed the function"
	case Scale:
		text = scaled(f)
	case Node:
		text = fmt.Sprintf("%s wanted, %d there", are(f.Wanted, "node"), f.Present)
		if f.Why != "" {
			text += ": " + f.Why
		}
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// because adds the reason to what was done.
func because(text string, f Fields) string {
	if why := reason(f); why != "" {
		return text + ": " + why
	}
	return text
}

// reason says why, "" if that is not known.
func reason(f Fields) string {
	switch scaling.Why(f.Why) {
	case scaling.Waiting:
		if f.Waiting > 0 {
			return count(f.Waiting, "request") + " waited, and no instance was ready"
		}
		return "a request waited, and no instance was ready"
	case scaling.Load:
		return load(f)
	case scaling.PeakLoad:
		return "the load was higher within the last minute"
	case scaling.Minimum:
		return "the function keeps this number of instances without load, too"
	case scaling.Forecast:
		return "the next request is expected soon, by the times of earlier ones"
	case scaling.NewRevision:
		return "the instances of the earlier revision are replaced"
	case scaling.Replacement:
		return "an earlier instance is replaced"
	case scaling.OtherForm:
		return "another variant, or another share of a GPU, serves the load for less"
	case scaling.Idle:
		if f.Idle > 0 {
			return "no request for " + seconds(f.Idle)
		}
		return "the function has no requests"
	case scaling.Surplus:
		return "less is enough, as " + load(f)
	case scaling.OverMax:
		return "the function has more instances than com.openfaas.scale.max allows"
	case scaling.Superseded:
		return "the instances of the later revision, or the better ones, replace it"
	case scaling.Evicted:
		if f.For != "" {
			return "the function " + f.For + " has no instance and needs the room"
		}
		return "a function without an instance needs the room"
	case scaling.Unpaired:
		return "the instance that it helped is gone, or it helps no more"
	case scaling.Rearranged:
		return "other instances carry more in the same room; " + load(f)
	}
	return f.Why
}

// load compares the load with what the instances carried.
func load(f Fields) string {
	text := "the load is " + perSecond(f.Load)
	if f.Program {
		if f.Waiting+f.InFlight > 0 {
			text += fmt.Sprintf(", with %s in progress and %d waiting", count(f.InFlight, "request"), f.Waiting)
		}
		return text
	}
	if f.Needed > 1.005*f.Load {
		text += ", which needs " + perSecond(f.Needed) + " with headroom"
	}
	return text + ", and the instances carried " + perSecond(f.Carries)
}

// instances names the instances of a decision: "2 instances ⟨8, 1000m⟩ on node-1".
func instances(f Fields) string {
	noun := "instance"
	if f.Shadow {
		noun = "shadow"
	}
	text := "an " + noun
	switch {
	case f.Instances > 1:
		text = count(f.Instances, noun)
	case f.Shadow:
		text = "a shadow"
	}
	if f.Batch > 0 && !f.Program {
		text += " " + config(f, f.CPU)
	}
	if f.Variant != "" {
		text += " of " + f.Variant
	}
	if f.Node != "" {
		text += " on " + f.Node
	}
	return text
}

// processors says what an instance computes with.
func processors(f Fields) string {
	if f.GPU > 0 {
		return "CPU and GPU"
	}
	return "CPU"
}

// config prints ⟨b, c, g⟩.
func config(f Fields, cpu int) string {
	if f.GPU > 0 {
		return fmt.Sprintf("⟨%d, %dm, %d %%⟩", f.Batch, cpu, f.GPU)
	}
	return fmt.Sprintf("⟨%d, %dm⟩", f.Batch, cpu)
}

// resized says how an instance's CPU quota changes.
func resized(f Fields) string {
	verb := "Raised"
	if f.CPU < f.FromCPU {
		verb = "Lowered"
	}
	whose := f
	whose.Batch = 0 // The quota is in the sentence already.
	if f.Error != "" {
		return fmt.Sprintf("Could not change the CPU of %s from %dm to %dm: %s", instances(whose), f.FromCPU, f.CPU, f.Error)
	}
	return because(fmt.Sprintf("%s the CPU of %s from %dm to %dm", verb, instances(whose), f.FromCPU, f.CPU), f)
}

// steered says how the level of capacity changes.
func steered(f Fields) string {
	if f.Level > 1 {
		return fmt.Sprintf("Plans for %.3g times the load, because more requests miss the objective than the percentile allows", f.Level)
	}
	return "Plans for the load as it is measured again, because requests meet the objective"
}

// relieved says how an instance is relieved.
func relieved(f Fields) string {
	switch {
	case f.Error != "":
		return "Could not move " + instances(f) + " to other cores: " + f.Error
	case f.Why == Moved:
		return "Moved " + instances(f) + " to other cores, because something else slows it down"
	}
	return "Replaces " + instances(f) + " by one on another node, because something else slows it down"
}

// Moved is the Why of Relieve for an instance that stays on its node.
const Moved = "moved"

// scaled says how many instances a function keeps, or for what it changes the number.
func scaled(f Fields) string {
	switch {
	case f.Replicas != nil:
		return "Set the number of instances to keep to " + strconv.FormatUint(*f.Replicas, 10)
	case f.Instances > f.FromInstances:
		return because(fmt.Sprintf("Scaled from %d to %d instances", f.FromInstances, f.Instances), f)
	}
	return because(fmt.Sprintf("Scaled down from %d to %d instances", f.FromInstances, f.Instances), f)
}

// are begins a sentence about a number of things.
func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return strconv.Itoa(n) + " " + noun + "s are"
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// perSecond prints a rate.
func perSecond(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(math.Round(rate), 'f', 0, 64) + "/s"
	}
	return strconv.FormatFloat(rate, 'g', 2, 64) + "/s"
}

// seconds prints a time for people.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return strconv.FormatFloat(math.Round(s*10)/10, 'g', 3, 64) + " s"
	case d < 2*time.Hour:
		return strconv.FormatFloat(math.Round(d.Minutes()), 'f', 0, 64) + " min"
	}
	return strconv.FormatFloat(math.Round(d.Hours()), 'f', 0, 64) + " h"
}

// capital makes the first letter a capital one.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
