package reproduction

import "time"

// inflessPolicies are compared under the highest load, tracePolicies under traces.
const (
	inflessPolicies = "openfaas+,openfaas+4t,batch,batch-published,infless,infless-release,infless-release-bb,infless-release-rs,infless-release-op1.5,infless-release-op2,faas-infer"
	tracePolicies   = "openfaas+,batch,batch-published,infless,infless-release,faas-infer"
	fewPolicies     = "openfaas+,batch,infless,infless-release,faas-infer"
)

// halfDay is the part of the traces that is simulated.
const halfDay = 12 * time.Hour

// seeds lists the papers. A new one is a row here.
var seeds = []Seed{
	{
		Name: "infless", Paper: "INFless (ASPLOS 2022)",
		About: "Systems: `infless` is INFless as printed, `infless-release` as its release runs it, `batch` BATCH with the exact latencies, `batch-published` as its authors run it. Of the traces, the first half day is simulated.",
		parts: []part{
			simulated("testbed-osvt-400ms", inflessPolicies, 0),
			simulated("testbed-osvt", fewPolicies, 0),
			simulated("testbed-qa", fewPolicies, 0),
			simulated("traces", tracePolicies, halfDay),
			simulated("coldstart", "", 0),
			simulated("scale", "infless,faas-infer", 0),
		},
		rules: inflessRules,
	},
	{
		Name: "batch", Paper: "BATCH (SC 2020)",
		About: "`batch` is BATCH with the exact latencies, chosen anew when the load changes; `batch-published` has its own formula and a choice each hour. The trace is the first day of INFless' bursty one, not one of BATCH's.",
		parts: []part{latencies(), simulated("batch-fig14", "", 0)},
		rules: []rule{
			{pattern: "batch-model/worst_pct.paper", test: most, paper: 9, where: "§VI-C, error of the model"},
			{pattern: "batch-fig14/worst_hour_over_slo.*.batch-published", test: most, paper: 1, where: "Fig. 14, p95 over the SLO"},
			{pattern: "batch-fig14/worst_hour_over_slo.*.batch", test: most, paper: 1, where: "Fig. 14, p95 over the SLO"},
			{pattern: "batch-fig14/cost_ratio.*.batch-published_over_*", test: most, paper: 1, where: "Fig. 14, cost below vanilla Lambda's"},
			{pattern: "batch-fig14/cost_ratio.*.batch_over_*", test: most, paper: 1, where: "Fig. 14, cost below vanilla Lambda's"},
		},
	},
	{
		Name: "infaas", Paper: "INFaaS (ATC 2021)",
		About: "INFaaS' profiles were never published. Table 3 and the choices of Fig. 6 follow from its Table 2; Fig. 5 and 7 are repeated in sign and order with seeded profiles.",
		parts: []part{simulated("infaas-table3", "", 0), simulated("infaas-fig6", "", 0), simulated("infaas-production", "", 0), simulated("infaas-sharing", "", 0)},
		rules: infaasRules,
	},
	{
		Name: "gillis", Paper: "Gillis (ICDCS 2021)",
		About: "Gillis' published coefficients. `gillis` has its options, `ours` ours on the same computation and network.",
		parts: []part{cuts()},
		rules: []rule{
			{pattern: "gillis/speedup.lambda.*.gillis", where: "Fig. 9", because: "the paper measured, and these follow from its coefficients alone"},
			{pattern: "gillis/speedup.knix.*.gillis", where: "Fig. 10", because: "the paper measured, and these follow from its coefficients alone; few of the layers are worth a round at KNIX' 12 ms"},
			{pattern: "gillis/over_pipeline.*.gillis", where: "Fig. 11", because: "the paper measured, and these follow from its coefficients alone"},
		},
	},
	{
		Name: "asyfunc", Paper: "AsyFunc (SoCC 2023)",
		About: "The paper prints no layer times; they follow from multiply-adds and bytes. Two minutes of each hour are simulated.",
		parts: []part{shadows(2 * time.Minute)},
		rules: []rule{
			{pattern: "asyfunc/memory_change_pct.best.asyfunc", where: "Fig. 10"},
			{pattern: "asyfunc/slo_violation_pct.fig1.*", where: "Fig. 1", because: "the paper does not say how long a container and its libraries take to start, nor the load"},
			{pattern: "asyfunc/instances_over_opt.fig1.*", where: "Fig. 1"},
		},
	},
}

// inflessRules judge INFless.
var inflessRules = []rule{
	{pattern: "testbed-osvt-400ms/max_rps.infless-release"},
	{pattern: "testbed-osvt-400ms/max_rps.infless", because: "as printed, ⌊1/t⌋·b of Eq. 1 loses up to half of a slow batch's rate"},
	{pattern: "testbed-osvt-400ms/max_rps.openfaas+4t"},
	{pattern: "testbed-osvt-400ms/max_rps.openfaas+", because: "two threads are half of the two cores of §5.1, so twice as many instances fit; see openfaas+4t"},
	{pattern: "testbed-osvt-400ms/max_rps.batch"},
	{pattern: "testbed-osvt-400ms/max_rps.batch-published", because: "its choice has the percentile at the objective by its formula, and keeps nothing in reserve for the spread of times and for instances that are busy"},
	{pattern: "testbed-osvt-400ms/ratio.infless-release-*_over_infless-release"},
	{pattern: "testbed-osvt-400ms/ratio.infless-release_over_batch-published", because: "batch-published bears less here than published; see its row"},
	{pattern: "testbed-osvt-400ms/ratio.infless-release_over_*", because: "the baseline bears more here than published, and infless-release less"},
	{pattern: "testbed-osvt/max_rps.infless*", because: "the kept logs and the ablations are of 400 ms; two images of SSD take 157 ms, more than half of 200 ms (Eq. 4)"},
	{pattern: "testbed-osvt/max_rps.openfaas+", because: "two threads are half of the two cores of §5.1"},
	{pattern: "testbed-osvt/max_rps.batch"},
	{pattern: "testbed-qa/max_rps.infless-release"},
	{pattern: "testbed-qa/max_rps.*", because: "the published 736 requests/s of OpenFaaS+ mean 87 to 174 ms a request, where the published profile has 3 to 20 ms"},
	{pattern: "traces/slo_violation_pct.*.infless-release"},
	{pattern: "traces/slo_violation_pct.*.infless"},
	{pattern: "traces/slo_violation_pct.*.openfaas+"},
	{pattern: "traces/throughput_per_resource_ratio.*.infless-release_over_batch-published"},
	{pattern: "traces/throughput_per_resource_ratio.*.infless-release_over_openfaas+"},
	{pattern: "coldstart/cold_rate_change_pct.*.lsth", test: sign},
	{pattern: "coldstart/idle_waste_change_pct.*.lsth", because: "the shortest keep-alive of a histogram of minutes saves little more on the two busier traces; on the sporadic one half of the standard keep-alive is two hours"},
	{pattern: "scale/fragment_pct.*.infless"},
}

// infaasRules judge INFaaS.
var infaasRules = []rule{
	{pattern: "infaas-table3/cost.10-300ms.infaas-ilp", paper: 2, where: "Table 3", part: 0.01},
	{pattern: "infaas-table3/cost.10-50ms.infaas-ilp", paper: 3, where: "Table 3", part: 0.01},
	{pattern: "infaas-table3/cost.1000-300ms.infaas-ilp", paper: 22, where: "Table 3", part: 0.01},
	{pattern: "infaas-fig6/cost_ratio.low.clipper+_over_infaas", paper: 21.6, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.low.sm+_over_infaas", paper: 21.3, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.steady.clipper+_over_infaas", paper: 1, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.steady.sm+_over_infaas", paper: 1.05, where: "Fig. 6", because: "sm+ holds two GPU instances and INFaaS one; the paper's own prices at the low load say so, too"},
	{pattern: "infaas-fig6/cost_ratio.fluctuating.clipper+_over_infaas", paper: 3, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.fluctuating.sm+_over_infaas", paper: 3, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.fluctuating-cpu-gpu.clipper+_over_infaas", paper: 1.7, where: "Fig. 6"},
	{pattern: "infaas-fig6/cost_ratio.fluctuating-cpu-gpu.sm+_over_infaas", paper: 1.7, where: "Fig. 6"},
	{pattern: "infaas-fig6/served_ratio.steady.sm+_over_infaas", paper: 0.85, where: "Fig. 6", part: 0.05},
	{pattern: "infaas-production/slo_violation_pct.infaas", test: most, paper: 4, where: "Fig. 5", because: "a week's trace passes in seven minutes, and what was sent to a slow instance before another one has loaded stays there"},
	{pattern: "infaas-production/served_ratio.clipper+_over_infaas", paper: 1 / 1.1, where: "Fig. 5", part: 0.1},
	{pattern: "infaas-production/served_ratio.sm+_over_infaas", paper: 1 / 1.3, where: "Fig. 5", part: 0.1},
}
