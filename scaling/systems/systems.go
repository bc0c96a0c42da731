package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The names of the systems.
const (
	OpenFaaS = "openfaas+"
	// OpenFaaSCores has two physical cores, four threads, for each instance. The others have
	// two threads. OpenFaaSRandom and OpenFaaSCoresRandom dispatch at random.
	OpenFaaSCores       = "openfaas+4t"
	OpenFaaSRandom      = "openfaas+random"
	OpenFaaSCoresRandom = "openfaas+4t-random"
	Batch               = "batch"
	BatchPublished      = "batch-published"
	INFless             = "infless"
	INFlessBB           = "infless-bb"
	INFlessRS           = "infless-rs"
	INFlessOP1          = "infless-op1.5"
	INFlessOP2          = "infless-op2"
	Release             = "infless-release"
	ReleaseBB           = "infless-release-bb"
	ReleaseRS           = "infless-release-rs"
	ReleaseOP1          = "infless-release-op1.5"
	ReleaseOP2          = "infless-release-op2"
	INFaaSName          = "infaas"
	INFaaSILP           = "infaas-ilp"
	Clipper             = "clipper+"
	ClipperCPU          = "clipper+cpu"
	SageMaker           = "sm+"
	SMCPU               = "sm+cpu"
	FaaSInfer           = "faas-infer"
)

// baselineKeepAlive is how long the baselines keep idle instances (INFless §5.1).
const baselineKeepAlive = coldstart.DefaultKeepAlive

// The paper does not give these values. They are those of INFless' release: it counts requests
// by the second, and stops instances that were not needed at three looks, 10 s apart.
const (
	inflessPeriod  = time.Second
	inflessRelease = 30 * time.Second
)

// systems lists all systems in the order in which figures show them.
var systems = []System{
	openFaaS(OpenFaaS, "OpenFaaS with GPUs: 2 CPU threads and 10 % of a GPU, one request at a time from a shared queue, kept alive for 300 s", twoThreads),
	openFaaS(OpenFaaSCores, "openfaas+ with 2 physical cores, 4 threads", fourThreads),
	openFaaS(OpenFaaSRandom, "openfaas+ whose requests go to an instance at random", twoThreads).scattering(),
	openFaaS(OpenFaaSCoresRandom, "openfaas+4t whose requests go to an instance at random", fourThreads).scattering(),
	{
		Name: Batch, Says: "BATCH atop OpenFaaS: one config, batch size and timeout for all instances, from its optimiser, kept alive for 300 s",
		settings: baseline(), cold: "fixed", batching: batching.BatchName, queue: capacity.LateBound, margin: times(1.1), choose: uniform,
	},
	{
		Name: BatchPublished, Says: "BATCH as its authors run it: its own latency formula, an instance for every batch, chosen each hour, times by regression",
		settings: baseline(), cold: "fixed", batching: batching.BatchName, queue: capacity.LateBound, margin: times(1), choose: asPublished, hourly: true,
	},
	infless(INFless, "INFless as published: Algorithm 1, a queue per instance, predictions + 10 %, LSTH", 1.1, fitting),
	infless(INFlessBB, "INFless without batching: every batch is one request", 1.1, single),
	infless(INFlessRS, "INFless without its scheduling: of each batch size only the config with the highest throughput", 1.1, strongest),
	infless(INFlessOP1, "INFless with predicted times half as long again", 1.5, fitting),
	infless(INFlessOP2, "INFless with predicted times twice as long", 2, fitting),
	infless(Release, "INFless as its release runs it: measured times without 10 %, at most max(2, b) CPU threads, no time for the way back", 1, fitting).released(),
	infless(ReleaseBB, "infless-release without batching", 1, single).released(),
	infless(ReleaseRS, "infless-release without its scheduling", 1, strongest).released(),
	infless(ReleaseOP1, "infless-release with times half as long again", 1.5, fitting).released(),
	infless(ReleaseOP2, "infless-release with times twice as long", 2, fitting).released(),
	infaasRow(INFaaSName, "INFaaS as published: its greedy heuristic chooses among variants (§4.2.2)", greedy, every),
	infaasRow(INFaaSILP, "INFaaS with the integer program of its §4.2.1 instead", program, every),
	infaasRow(Clipper, "Clipper+ of INFaaS §6: a number of instances of one variant, which the developer chooses", preloaded, pinned).spreading(),
	infaasRow(ClipperCPU, "Clipper+ with another choice, in INFaaS' Fig. 6 a variant on CPUs", preloaded, pinned).spreading(),
	infaasRow(SageMaker, "SM+ of INFaaS §6: one variant, which the developer chooses, scaled with the load", greedy, pinned),
	infaasRow(SMCPU, "SM+ with another choice, in INFaaS' Fig. 6 a variant on CPUs", greedy, pinned),
	{
		Name: FaaSInfer, Says: "ours: configs and places chosen together, one queue per function, the percentile that was promised",
		settings: ours(), cold: "faas-infer", batching: batching.SharedName, queue: capacity.LateBound, choose: every,
	},
}

// infless returns INFless or one of its ablations. They differ in margin and chooser.
func infless(name, says string, margin float64, choose chooser) System {
	s := scaling.DefaultSettings()
	s.Options, s.Headroom, s.Stabilisation = capacity.Faithful(), 0, inflessRelease
	return System{Name: name, Says: says, settings: s, period: inflessPeriod, cold: "lsth", batching: batching.InFlessName, queue: capacity.PerInstance, margin: times(margin), choose: choose}
}

// released returns INFless with what its release does differently from the paper: the configs
// of [System.allows], the rounding of Eq. 1 and β. It keeps Eq. 10 as printed; the release
// has r_up alone as its numerator.
func (s System) released() System {
	s.release, s.settings.Rounding, s.settings.Beta = true, capacity.Whole, capacity.ReleaseBeta
	return s
}

// openFaaS returns OpenFaaS+ whose instances have a share (INFless §5.1).
func openFaaS(name, says string, share cluster.Resources) System {
	return System{
		Name: name, Says: says, settings: baseline(), cold: "fixed", batching: batching.OneToOneName, queue: capacity.LateBound, margin: times(1), choose: one, plain: share,
	}
}

// scattering returns the system with requests sent to instances at random.
func (s System) scattering() System {
	s.scatters = true
	return s
}

// baseline returns the settings of OpenFaaS and BATCH: as many instances as the load needs,
// where Kubernetes' scheduler puts them by default, each with its own keep-alive. INFless'
// Fig. 17 shows that the places are Kubernetes': BATCH has fewer fragments with INFless'
// placement.
func baseline() scaling.Settings {
	s := scaling.DefaultSettings()
	s.Options, s.KeepAlive = capacity.Greedy(), baselineKeepAlive
	s.HalfSLO, s.Placement = false, capacity.Spread
	return s
}

// ours returns faas-infer's settings: it plans for all functions at once.
func ours() scaling.Settings {
	s := scaling.DefaultSettings()
	s.Options = schedulers[0].options()
	return s
}

func times(factor float64) *float64 { return &factor }
