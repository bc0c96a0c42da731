package variants

import (
	"bytes"
	"context"
	_ "embed" // the program for HiGHS
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/model/bundle"
)

//go:embed highs.py
var solver string

//go:embed highs.txt
var packages []byte

// matrix is an integer program as HiGHS takes it: minimise cost·x with lower ≤ A·x ≤ upper and
// 0 ≤ x ≤ bounds. A bound below 0 is none.
type matrix struct {
	Cost    []float64  `json:"cost"`
	Bounds  []float64  `json:"bounds"`
	Rows    []int      `json:"rows"`
	Columns []int      `json:"columns"`
	Values  []float64  `json:"values"`
	Lower   []*float64 `json:"lower"`
	Upper   []*float64 `json:"upper"`
}

// matrixOf writes a program with two variables for each option: the instances that run, and
// those that must be loaded, which cost more.
func matrixOf(p *infaas.Program) matrix {
	var m matrix
	first := len(p.Applications)
	for a := range p.Applications {
		m.Lower, m.Upper = append(m.Lower, &p.Applications[a].Load), append(m.Upper, nil)
	}
	for k := range p.Limits {
		m.Lower, m.Upper = append(m.Lower, nil), append(m.Upper, &p.Limits[k])
	}
	for a := range p.Applications {
		for i := range p.Applications[a].Options {
			o := &p.Applications[a].Options[i]
			for _, loaded := range []bool{false, true} {
				bound, cost := float64(o.Running), o.Cost
				if loaded {
					bound, cost = -1, o.Cost*(1+p.Lambda*o.Loading)
				}
				at := len(m.Cost)
				m.Cost, m.Bounds = append(m.Cost, cost), append(m.Bounds, bound)
				m.entry(a, at, o.Rate)
				for k, need := range o.Needs {
					m.entry(first+k, at, need)
				}
			}
		}
	}
	return m
}

func (m *matrix) entry(row, column int, value float64) {
	if value != 0 {
		m.Rows, m.Columns, m.Values = append(m.Rows, row), append(m.Columns, column), append(m.Values, value)
	}
}

// answer is HiGHS' answer to a program.
type answer struct {
	objective, bound, seconds float64
	optimal                   bool
}

// highs solves programs with HiGHS, in an environment that it makes once.
func highs(ctx context.Context, programs []*infaas.Program) ([]answer, error) {
	dir, err := os.MkdirTemp("", "faas-infer-highs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(file, packages, 0o600); err != nil {
		return nil, err
	}
	env, err := environment.Ensure(ctx, bundle.EnginePython, file)
	if err != nil {
		return nil, fmt.Errorf("install HiGHS: %w", err)
	}
	var all []matrix
	for _, p := range programs {
		all = append(all, matrixOf(p))
	}
	input, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, env.Python, "-c", solver)
	var complaint bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(input), &complaint
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("run HiGHS: %w: %s", err, complaint.Bytes())
	}
	var found [][4]any
	if err := json.Unmarshal(out, &found); err != nil || len(found) != len(programs) {
		return nil, fmt.Errorf("read HiGHS' %d answers to %d programs: %w", len(found), len(programs), err)
	}
	answers := make([]answer, len(found))
	for i, f := range found {
		a := &answers[i]
		var ok [4]bool
		a.objective, ok[0] = f[0].(float64)
		a.bound, ok[1] = f[1].(float64)
		a.seconds, ok[2] = f[2].(float64)
		a.optimal, ok[3] = f[3].(bool)
		if ok != [4]bool{true, true, true, true} {
			return nil, fmt.Errorf("HiGHS' answer %d is %v: it must be three numbers and a truth value", i, f)
		}
	}
	return answers, nil
}
