// Package baselines has the systems that the simulator compares: beside those of package systems the
// baselines of INFless §5.1, its ablations (§5.2) and its release, BATCH as its authors run it, and
// INFaaS with its baselines (ATC'21, §6), which choose among variants of models. The package is pure.
// Begin with [ByName].
package baselines

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/batching"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// The names of the systems that the core has not.
const (
	Batch    = paper.Name
	OpenFaaS = "openfaas+"
	// OpenFaaSCores has two physical cores, four threads, for each instance. The others have
	// two threads.
	OpenFaaSCores  = "openfaas+4t"
	BatchPublished = "batch-published"
	INFlessBB      = "infless-bb"
	INFlessRS      = "infless-rs"
	INFlessOP1     = "infless-op1.5"
	INFlessOP2     = "infless-op2"
	Release        = "infless-release"
	ReleaseBB      = "infless-release-bb"
	ReleaseRS      = "infless-release-rs"
	ReleaseOP1     = "infless-release-op1.5"
	ReleaseOP2     = "infless-release-op2"
	INFaaSName     = "infaas"
	INFaaSILP      = "infaas-ilp"
	Clipper        = "clipper+"
	ClipperCPU     = "clipper+cpu"
	SageMaker      = "sm+"
	SMCPU          = "sm+cpu"
	// Greedy is faas-infer with its scheduler greedy. [Names] leaves it out: it shows what planning
	// all functions together gains. Deferred is faas-infer with Symphony's window in place of its own rule
	// for when a batch starts.
	Greedy   = "faas-infer-greedy"
	Deferred = "faas-infer-deferred"
)

// The systems of the core and of BATCH, and those that stand apart: only scenarios that name them run them.
var (
	batch     = core(Batch)
	infless   = core(systems.INFless)
	released  = release()
	faasInfer = core(systems.FaaSInfer)
	apart     = append([]systems.System{
		faasInfer.Change(Greedy, "ours, one instance placed after the other", func(r *systems.Rules) { r.Settings.Options = capacity.Greedy() }),
		faasInfer.Change(Deferred, "ours, with batches that wait for Symphony's window", func(r *systems.Rules) { r.Batching = batching.DeferredName }),
	}, pooled()...)
)

// all lists all systems in the order in which figures show them.
var all = slices.Concat([]systems.System{
	openFaaS(OpenFaaS, "OpenFaaS with GPUs: 2 CPU threads and 10 % of a GPU, one request at a time from a shared queue, kept alive for 300 s"),
	openFaaS(OpenFaaSCores, "openfaas+ with 2 physical cores, 4 threads"),
	batch,
	asPrinted(),
	infless,
	infless.Change(INFlessBB, "INFless without batching: every batch is one request", chosen(single)),
	infless.Change(INFlessRS, "INFless without its scheduling: of each batch size only the config with the highest throughput", strongest),
	infless.Change(INFlessOP1, "INFless with predicted times half as long again", margin(1.5)),
	infless.Change(INFlessOP2, "INFless with predicted times twice as long", margin(2)),
	released,
	released.Change(ReleaseBB, "infless-release without batching", chosen(singleAllowed)),
	released.Change(ReleaseRS, "infless-release without its scheduling", strongest),
	released.Change(ReleaseOP1, "infless-release with times half as long again", margin(1.5)),
	released.Change(ReleaseOP2, "infless-release with times twice as long", margin(2)),
}, infaasSystems(), []systems.System{faasInfer})

// core returns a system that is registered in package systems.
func core(name string) systems.System {
	s, err := systems.ByName(name)
	if err != nil {
		panic(err) // The names are those of the core and of BATCH.
	}
	return s
}

// Names lists the names of the systems that serve functions of one model, faas-infer last.
func Names() []string { return names(func(s systems.System) bool { return !choosesVariants(s) }) }

// ForVariants lists those that choose among variants of models, faas-infer last.
func ForVariants() []string {
	return names(func(s systems.System) bool { return choosesVariants(s) || s.Name == systems.FaaSInfer })
}

func names(of func(systems.System) bool) []string {
	var found []string
	for _, s := range all {
		if of(s) {
			found = append(found, s.Name)
		}
	}
	return found
}

// ByName returns the system of that name, or an error that lists the known ones.
func ByName(name string) (systems.System, error) {
	known := slices.Concat(apart, all)
	i := slices.IndexFunc(known, func(s systems.System) bool { return s.Name == name })
	if i < 0 {
		listed := append(names(func(systems.System) bool { return true }), Apart()...)
		return systems.System{}, fmt.Errorf("unknown policy %q: it is one of %s", name, strings.Join(listed, ", "))
	}
	return known[i], nil
}

// Apart lists the systems that run only where they are named: two changes of faas-infer, and those that serve a
// model on a given number of accelerators.
func Apart() (found []string) {
	for _, s := range apart {
		found = append(found, s.Name)
	}
	return found
}

// chosen makes a chooser a system's.
func chosen(c systems.Chooser) func(*systems.Rules) {
	return func(r *systems.Rules) { r.Choose = c }
}

// margin makes a factor the one for predicted times.
func margin(factor float64) func(*systems.Rules) {
	return func(r *systems.Rules) { r.Margin = factor }
}

// release returns INFless with what its release does differently from the paper: the configs of
// allows, no time for the way back, the rounding of Eq. 1 and β. It keeps Eq. 10 as printed; the
// release has r_up alone as its numerator.
func release() systems.System {
	return core(systems.INFless).Change(Release, "INFless as its release runs it: measured times without 10 %, at most max(2, b) CPU threads, no time for the way back", func(r *systems.Rules) {
		r.Settings.Rounding, r.Settings.Beta, r.Margin = capacity.Whole, capacity.ReleaseBeta, 1
		r.Choose = func(s systems.System, f systems.Function, _ float64, t systems.Times) []capacity.Candidate {
			return systems.Fitting(allowed(s.Predicted(f, t)), f.SLO)
		}
	})
}

// allowed keeps the configs that INFless' release tries: 2, 4, … CPU threads up to max(2, b).
func allowed(all []capacity.Candidate) []capacity.Candidate {
	const thread = 1000
	return slices.DeleteFunc(all, func(c capacity.Candidate) bool {
		return c.Config.CPU%(2*thread) != 0 || c.Config.CPU > thread*max(2, c.Config.Batch)
	})
}

// single considers batches of one only (BB of INFless §5.2).
func single(s systems.System, f systems.Function, _ float64, t systems.Times) []capacity.Candidate {
	return slices.DeleteFunc(s.Predicted(f, t), func(c capacity.Candidate) bool { return c.Config.Batch != 1 })
}

// singleAllowed is single of the configs that INFless' release tries.
func singleAllowed(s systems.System, f systems.Function, rate float64, t systems.Times) []capacity.Candidate {
	return allowed(single(s, f, rate, t))
}

// strongest makes a system consider only the config with the highest throughput of each batch
// size, whatever it costs and whether or not it fits the free resources (RS of INFless §5.2).
func strongest(r *systems.Rules) {
	choose := r.Choose
	r.Choose = func(s systems.System, f systems.Function, rate float64, t systems.Times) []capacity.Candidate {
		all := choose(s, f, rate, t)
		slices.SortFunc(all, func(a, b capacity.Candidate) int {
			return cmp.Or(cmp.Compare(b.Config.Batch, a.Config.Batch), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.GPU, b.Config.GPU), cmp.Compare(a.Config.CPU, b.Config.CPU))
		})
		return slices.CompactFunc(all, func(a, b capacity.Candidate) bool { return a.Config.Batch == b.Config.Batch })
	}
}
