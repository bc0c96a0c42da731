// Package reproduction repeats the evaluation of one paper in one go: it runs the scenarios and
// calculations of its figures, puts the published values beside the simulated ones, and judges
// each as repeated or not. It simulates nothing itself; lab/figure, lab/batchmodel, lab/gillis
// and lab/asyfunc do. Begin with Run, then the papers in seeds.go.
package reproduction

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
)

// Seed is a paper that faas-infer grew from.
type Seed struct {
	// Name is its name in commands and files, Paper its citation, About a line about it.
	Name, Paper, About string
	// parts are run one after the other.
	parts []part
	// rules say which results are judged, and how. The first that matches counts.
	rules []rule
}

// part is one command's work.
type part struct {
	// name is unique in the seed. command prints the part alone.
	name, command string
	run           func(ctx context.Context, progress func(done, total int)) (*figure.Outcome, error)
}

// Outcome is a repeated paper.
type Outcome struct {
	Seed Seed
	// Report has the machine, the commit and the date. Its results are named PART/RESULT.
	Report *report.Report
	Parts  []Part
	Claims []Claim
}

// Part is the outcome of one part.
type Part struct {
	Name, Command string
	Took          time.Duration
	Tables        []figure.Table
	Drawings      []draw.Drawing
}

// Seeds lists the papers.
func Seeds() []Seed { return seeds }

// ByName returns the paper of that name, or an error that lists the known ones.
func ByName(name string) (Seed, error) {
	var known []string
	for _, s := range seeds {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return Seed{}, fmt.Errorf("unknown seed %q: it is one of %s", name, strings.Join(known, ", "))
}

// Run repeats a paper. progress, if not nil, is told how much is done.
func Run(ctx context.Context, s Seed, progress func(done, total int)) (*Outcome, error) {
	o := &Outcome{Seed: s, Report: report.New("reproduce "+s.Name, time.Now())}
	const whole = 100
	for i, p := range s.parts {
		began := time.Now()
		one, err := p.run(ctx, func(done, total int) {
			if progress != nil {
				progress(whole*i+whole*done/max(1, total), whole*len(s.parts))
			}
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.command, err)
		}
		o.Parts = append(o.Parts, Part{p.name, p.command, time.Since(began), one.Tables, one.Drawings})
		for _, r := range one.Results {
			r.Name = p.name + "/" + r.Name
			o.Report.Results = append(o.Report.Results, r)
		}
	}
	if progress != nil {
		progress(whole*len(s.parts), whole*len(s.parts))
	}
	o.Claims = judge(s.rules, o.Report.Results)
	return o, nil
}

// matches reports whether a result's name, PART/RESULT, is the rule's. The pattern is that of
// [path.Match].
func (r rule) matches(name string) bool {
	ok, err := path.Match(r.pattern, name)
	return err == nil && ok
}
