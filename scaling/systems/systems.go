package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The names of the systems.
const (
	OpenFaaS   = "openfaas+"
	Batch      = "batch"
	INFless    = "infless"
	INFlessBB  = "infless-bb"
	INFlessRS  = "infless-rs"
	INFlessOP1 = "infless-op1.5"
	INFlessOP2 = "infless-op2"
	INFaaSName = "infaas"
	INFaaSILP  = "infaas-ilp"
	Clipper    = "clipper+"
	ClipperCPU = "clipper+cpu"
	SageMaker  = "sm+"
	SMCPU      = "sm+cpu"
	FaaSInfer  = "faas-infer"
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
	{
		Name: OpenFaaS, Says: "OpenFaaS with GPUs: 2 cores and 10 % of a GPU, one request at a time, kept alive for 300 s",
		settings: baseline(), cold: "fixed", batching: batching.OneToOneName, queue: capacity.LateBound, margin: times(1), choose: one,
	},
	{
		Name: Batch, Says: "BATCH atop OpenFaaS: one config, batch size and timeout for all instances, from its optimiser, kept alive for 300 s",
		settings: baseline(), cold: "fixed", batching: batching.BatchName, queue: capacity.LateBound, margin: times(1.1), choose: uniform,
	},
	infless(INFless, "INFless as published: Algorithm 1, a queue per instance, predictions + 10 %, LSTH", 1.1, fitting),
	infless(INFlessBB, "INFless without batching: every batch is one request", 1.1, single),
	infless(INFlessRS, "INFless without its scheduling: of each batch size only the config with the highest throughput", 1.1, strongest),
	infless(INFlessOP1, "INFless with predicted times half as long again", 1.5, fitting),
	infless(INFlessOP2, "INFless with predicted times twice as long", 2, fitting),
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
