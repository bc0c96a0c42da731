package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// arrivalPause is the time between two looks for kinds of GPUs that are new, followLongest the longest
// between two looks of a replica for what the leader has found.
const (
	arrivalPause  = 5 * time.Second
	followLongest = 10 * time.Minute
)

// arrivals notices what came after a function was prepared: a kind of GPU, with a driver that was loaded
// late or with a node, and the leadership, as only the leader finds times on GPUs. Only it changes a
// function's search.
type arrivals struct {
	// devices is nil if no model runs on a GPU.
	devices   latency.Devices
	keeper    *keeper.Keeper[*instance]
	functions map[string]*function
	trials    *trials
	// leading reports whether this replica finds times on GPUs.
	leading func() bool
	at      time.Time
}

// search is the latest search for times on GPUs: when it began, the kinds that there were, and whether this
// replica has led since. If it did not, it looks at next for the times that the leader has found, for the
// looks-th time.
type search struct {
	begun time.Time
	kinds []string
	led   bool
	looks int
	next  time.Time
}

// begin notes that a search for a function's times begins. The lock is held.
func (a *arrivals) begin(fn *function) {
	if a.devices != nil {
		fn.searched = search{begun: time.Now(), kinds: a.devices.Devices(), led: a.leading()}
	}
}

// look prepares the functions again whose models may have times on a GPU that they had not when they
// were prepared. The store has what is known of them, so only times on new GPUs are found. The
// lock is held.
func (a *arrivals) look(now time.Time, leading bool) {
	if a.devices == nil || now.Sub(a.at) < arrivalPause || a.keeper.Ended() {
		return
	}
	a.at = now
	kinds := a.devices.Devices()
	for _, fn := range a.functions {
		if fn.wanted == nil || fn.wanted.Inference.Device == annotation.DeviceCPU {
			continue
		}
		fn.searched.led = fn.searched.led && leading
		fresh := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(fn.searched.kinds, kind) })
		looks := 1
		switch {
		case len(fresh) > 0:
			fn.log.Info().Strs("gpus", fresh).Msg("there is a new kind of GPU; the function's models may run there")
		case leading && now.Sub(fn.searched.begun) >= trialTime && a.trials.untried(fn): // A GPU may be free now.
		case len(kinds) == 0 || fn.searched.led || !lackDevice(fn.artefacts) && !(leading && a.trials.take(fn)):
			continue
		case leading: // Nobody else finds the times any more.
		case now.Before(fn.searched.next):
			continue
		default:
			looks = fn.searched.looks + 1
		}
		fn.again()
		fn.searched.looks, fn.searched.next = looks, now.Add(backoff.Pause(looks, arrivalPause, followLongest))
	}
}

// learned prepares the functions again whose models have no times on some GPU. The lock is held.
func (a *arrivals) learned() {
	if a.devices == nil || a.keeper.Ended() || len(a.devices.Devices()) == 0 {
		return
	}
	for _, fn := range a.functions {
		switch {
		case fn.wanted == nil || fn.wanted.Inference.Device == annotation.DeviceCPU:
		case fn.measured() && fn.failed == "" && !lackDevice(fn.artefacts) && leftOut(fn.artefacts) == "":
		case !a.leading():
			fn.searched.led = false // It looks once it leads.
		default:
			fn.again()
		}
	}
}

// lackDevice reports whether one of a function's models is served without times on any GPU.
func lackDevice(artefacts []*artefact) bool {
	return slices.ContainsFunc(artefacts, func(a *artefact) bool { return a.cut == nil && len(a.profile.DeviceShares()) == 0 })
}
