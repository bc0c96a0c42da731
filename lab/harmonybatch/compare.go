package harmonybatch

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
)

// VGG19 is VGG-19 on Alibaba's functions with vCPU and an A10, as the authors' program has it
// (icloud-ecnu/HarmonyBatch, conf/model.json, MIT licence).
var VGG19 = Model{
	Name: "VGG-19",
	Mean: []Curve{{1.82607, 0.528373, 0.180154}, {4.84907, 0.432251, 0.364475}, {6.52504, 0.459234, 0.533468}, {8.92256, 0.448473, 0.756989}},
	Max:  []Curve{{2.80468, 0.486197, 0.248602}, {4.9219, 0.489093, 0.39328}, {6.9439, 0.505163, 0.569539}, {9.6516, 0.465926, 0.828771}},
	Each: 0.00167984, Fixed: 0.00211309, Slice: 0.002, Whole: 24, Least: 2,
}

// Case is a set of applications.
type Case struct {
	Name         string
	Applications []Application
}

// TableI is the example of the paper's §II-C.
var TableI = Case{"table-1", []Application{{500 * time.Millisecond, 5}, {800 * time.Millisecond, 10}, {time.Second, 20}}}

// cases are the paper's example, and its eight objectives (conf/config.json of the program) at several rates.
func cases() []Case {
	all := []Case{TableI}
	for _, rate := range []float64{0.1, 0.5, 2, 10} {
		c := Case{Name: fmt.Sprintf("eight-%g", rate)}
		for ms := 300; ms <= 1000; ms += 100 {
			c.Applications = append(c.Applications, Application{time.Duration(ms) * time.Millisecond, rate})
		}
		all = append(all, c)
	}
	return all
}

// ways are the ways to divide applications into groups.
func (m *Model) ways() []way {
	return []way{
		{"alone", "each application has a function, on cores or on a GPU", func(a []Application) ([]*Group, error) { return m.Alone(a, false) }},
		{"harmonybatch", "Algorithm 1", m.HarmonyBatch},
		{"together", "one function for all, as functions that share instances here have one queue", m.Together},
		{"best", "the cheapest groups of neighbours, all tried", m.Best},
	}
}

type way struct {
	name, says string
	groups     func([]Application) ([]*Group, error)
}

// Run compares the cost of a request under each way with that under BATCH, which gives each application a function
// on cores.
func Run(command string) (*report.Report, error) {
	r := report.New(command, time.Now())
	for _, c := range cases() {
		batch, err := VGG19.Alone(c.Applications, true)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		for _, w := range VGG19.ways() {
			groups, err := w.groups(c.Applications)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.Name, w.name, err)
			}
			onGPU := 0
			for _, g := range groups {
				onGPU += min(1, g.GPU)
			}
			r.Add("cost_over_batch."+c.Name+"."+w.name, Cost(groups)/Cost(batch), "", fmt.Sprintf("%s: %d functions, %d on a GPU", w.says, len(groups), onGPU))
		}
	}
	return r, nil
}
