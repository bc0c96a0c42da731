package draw

import (
	_ "embed" // the figures
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
)

// PaperSource is the citation for the published figures.
const PaperSource = "INFless, ASPLOS 2022; numbers behind its plots from github.com/TankLabTJU/INFless"

//go:embed infless.json
var text []byte

// PaperFigures are the published numbers, in the form of infless.json.
type PaperFigures struct {
	OSVT map[string]float64 `json:"fig11a_osvt_rps"`
	QA   map[string]float64 `json:"fig11b_qa_rps"`
	// Traces is Fig. 12(a): throughput per resource relative to the best.
	Traces struct {
		Cols     []string
		OpenFaaS []float64 `json:"OpenFaaS+"`
		BATCH    []float64
		INFless  []float64
	} `json:"fig12a_norm_thr"`
	// BySLO is Fig. 12(b), OSVT: throughput per resource by objective.
	BySLO struct {
		SLO     []float64 `json:"slo_ms"`
		BATCH   []float64
		INFless []float64
	} `json:"fig12b_thr_per_res"`
	// Batches is Fig. 13(a, b): ResNet-50's throughput from batches of 1, 2, 4
	// and 8, by objective.
	Batches struct {
		SLO     []float64 `json:"slo_ms"`
		INFless [][]float64
		BATCH   [][]float64
	} `json:"fig13_batch_rps_b1248"`
	// At150 and At350 are Fig. 15(b, c): waiting and execution in ms of
	// instances under objectives of 150 and 350 ms.
	At150 [][2]float64 `json:"fig15b_queue_exec_ms_slo150"`
	At350 [][2]float64 `json:"fig15c_queue_exec_ms_slo350"`
	// Schedule is Fig. 17(a): instances, then times in ms.
	Schedule struct {
		Instances []float64
		Rows      [][]float64
	} `json:"fig17a"`
	// Fragments is Fig. 17(b), as parts of 1.
	Fragments struct {
		Instances []float64
		INFless   []float64
		BATCH     []float64
		OpenFaaS  []float64 `json:"OpenFaaS+"`
		BATCHRS   []float64 `json:"BATCH+RS"`
	} `json:"fig17b_fragment"`
	// ByFunctions and ByLargeSLO are Fig. 18: throughput per resource relative
	// to the best, by the number of functions and by objective.
	ByFunctions PaperLarge `json:"fig18a"`
	ByLargeSLO  PaperLarge `json:"fig18b"`
	// Cold is Fig. 16.
	Cold struct {
		Rows []json.RawMessage
	} `json:"fig16"`
}

// PaperLarge is one half of Fig. 18.
type PaperLarge struct {
	Functions []float64
	SLO       []float64 `json:"slo_ms"`
	INFless   []float64
	BATCH     []float64
	OpenFaaS  []float64 `json:"OpenFaaS+"`
}

// Paper returns the published figures.
var Paper = sync.OnceValue(func() *PaperFigures {
	var f PaperFigures
	if err := json.Unmarshal(text, &f); err != nil {
		panic(fmt.Errorf("the paper's figures: %w", err)) // The file is embedded, and a test reads it.
	}
	return &f
})

// names are the paper's names of the policies.
var names = map[string]string{
	"openfaas+": "OpenFaaS+", "batch": "BATCH", "batch-published": "BATCH", "infless": "INFless", "infless-bb": "-BB",
	"infless-rs": "-RS", "infless-op1.5": "-OP1.5", "infless-op2": "-OP2",
	"openfaas+4t":     "OpenFaaS+",
	"infless-release": "INFless", "infless-release-bb": "-BB", "infless-release-rs": "-RS",
	"infless-release-op1.5": "-OP1.5", "infless-release-op2": "-OP2",
}

// PaperThroughput returns Fig. 11's highest rate in requests/s of an application, "osvt" or
// "qa", under a policy. faas-infer's policies have none.
func PaperThroughput(application, policy string) (float64, bool) {
	of := map[string]map[string]float64{"osvt": Paper().OSVT, "qa": Paper().QA}[application]
	v, ok := of[names[policy]]
	return v, ok
}

// PaperRatio returns the ratio of two policies' throughputs in Fig. 11.
func PaperRatio(application, policy, over string) (float64, bool) {
	a, ok := PaperThroughput(application, policy)
	b, too := PaperThroughput(application, over)
	return a / b, ok && too && names[policy] != names[over]
}

// PaperPerResource returns Fig. 12(a)'s throughput per resource under a trace, relative to
// INFless' under "bursty".
func PaperPerResource(trace, policy string) (float64, bool) {
	t := Paper().Traces
	i := slices.Index(t.Cols, trace)
	of, ok := map[string][]float64{"openfaas+": t.OpenFaaS, "batch": t.BATCH, "batch-published": t.BATCH, "infless": t.INFless, "infless-release": t.INFless}[policy]
	if i < 0 || !ok {
		return 0, false
	}
	return of[i], true
}

// PaperFragment returns Fig. 17(b)'s part in % of the active machines that no instance
// holds.
func PaperFragment(instances int, policy string) (float64, bool) {
	f := Paper().Fragments
	i := slices.Index(f.Instances, float64(instances))
	of, ok := map[string][]float64{"openfaas+": f.OpenFaaS, "batch": f.BATCH, "infless": f.INFless}[policy]
	if i < 0 || !ok {
		return 0, false
	}
	return 100 * of[i], true
}

// PaperScheduleTime returns Fig. 17(a)'s time in ms that INFless takes to schedule a number
// of instances.
func PaperScheduleTime(instances int) (float64, bool) {
	s := Paper().Schedule
	i := slices.Index(s.Instances, float64(instances))
	if i < 0 {
		return 0, false
	}
	return s.Rows[i][2], true
}

// PaperColdStart returns Fig. 16's changes in % of LSTH against HHP under a trace, with
// LSTH's parameter γ: of the rate of cold starts and of the idle resources.
func PaperColdStart(trace string, gamma float64) (rate, idle float64, ok bool) {
	for _, raw := range Paper().Cold.Rows {
		var of string
		var g, resource, one, cold float64
		if json.Unmarshal(raw, &[]any{&of, &g, &resource, &one, &cold}) != nil {
			continue
		}
		if of == trace && math.Abs(g-gamma) < 1e-9 {
			return 100 * (cold - 1), 100 * (resource - 1), true
		}
	}
	return 0, 0, false
}

// The figures in the text of §5.
const (
	// OverOpenFaaS and OverBATCH are INFless' throughput over that of the two
	// baselines, the average of both applications (§5.2; the plotted values of OSVT).
	OverOpenFaaS, OverBATCH = 5.2, 2.6
	// Violations is the mean share in % of INFless' requests that miss their
	// objective under the traces. OpenFaaSViolations is that of OpenFaaS+ under
	// "sporadic" (§5.2).
	Violations, OpenFaaSViolations = 3.1, 8.0
	// ColdRateChange and IdleChange are the average changes in % of LSTH against HHP
	// (§5.2). The plotted values of Fig. 16 average −17.2 % for the first.
	ColdRateChange, IdleChange = -21.9, -24.3
	// PaperFragments is the share of fragments in % that §5.3 states; the plot has
	// 17–19 %.
	PaperFragments = 15.0
)

// PaperViolation returns the share in % of a policy's requests that miss their objective
// under one of the three traces, and the place in the text. INFless' is the mean over the
// traces.
func PaperViolation(trace, policy string) (pct float64, ok bool, where string) {
	if _, known := PaperPerResource(trace, "infless"); !known {
		return 0, false, ""
	}
	switch {
	case names[policy] == names["infless"]:
		return Violations, true, "§5.2, mean, at most"
	case policy == "openfaas+" && trace == "sporadic":
		return OpenFaaSViolations, true, "§5.2"
	}
	return 0, false, ""
}

// PaperDrops returns by how many % throughput changes without batching (BB), without
// prediction (OP, half of the time added) and without scheduling (RS), as the text of §5.2
// states. The plots agree except for OSVT's RS.
func PaperDrops(application string) map[string]float64 {
	return map[string]map[string]float64{
		"osvt": {"infless-bb": -45.6, "infless-op1.5": -35.4, "infless-rs": -21.9},
		"qa":   {"infless-bb": -60, "infless-op1.5": -34.3, "infless-rs": -7},
	}[application]
}
