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
	// Report has the machines and commits that ran the parts, and today's date. Its results are
	// named PART/RESULT.
	Report *report.Report
	Parts  []Part
	Claims []Claim
}

// Part is the outcome of one part.
type Part struct {
	Name, Command string
	// Machine and Commit ran it.
	Machine, Commit string
	Took            time.Duration
	Results         []report.Result
	Tables          []figure.Table
	Drawings        []draw.Drawing
}

// Options say how a paper is repeated. The zero value runs all parts.
type Options struct {
	// Keep is a directory. Outcomes of parts that it has are not calculated again, whichever
	// commit calculated them, and others are put there. "" keeps nothing.
	Keep string
	// Progress, if not nil, is told how much is done.
	Progress func(done, total int)
	// Ended, if not nil, is told of each part, and whether Keep had its outcome.
	Ended func(p *Part, had bool)
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

// Run repeats a paper. An error names the part's command.
func Run(ctx context.Context, s Seed, options Options) (*Outcome, error) {
	o := &Outcome{Seed: s, Report: report.New("reproduce "+s.Name, time.Now())}
	const whole = 100
	progress := options.Progress
	if progress == nil {
		progress = func(int, int) {}
	}
	for i, p := range s.parts {
		one, err := kept(options.Keep, s, p)
		had := one != nil
		if err == nil && !had {
			one, err = o.run(ctx, p, func(done, total int) { progress(whole*i+whole*done/max(1, total), whole*len(s.parts)) })
			if err == nil {
				err = keep(options.Keep, s, p, one)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.command, err)
		}
		if options.Ended != nil {
			options.Ended(one, had)
		}
		o.Parts = append(o.Parts, *one)
		for _, r := range one.Results {
			r.Name = p.name + "/" + r.Name
			o.Report.Results = append(o.Report.Results, r)
		}
		progress(whole*(i+1), whole*len(s.parts))
	}
	o.Report.Machine, o.Report.Commit = o.distinct(func(p *Part) string { return p.Machine }), o.distinct(func(p *Part) string { return p.Commit })
	o.Claims = judge(s.rules, o.Report.Results)
	return o, nil
}

// run calculates a part.
func (o *Outcome) run(ctx context.Context, p part, progress func(done, total int)) (*Part, error) {
	began := time.Now()
	one, err := p.run(ctx, progress)
	if err != nil {
		return nil, err
	}
	return &Part{p.name, p.command, o.Report.Machine, o.Report.Commit, time.Since(began), one.Results, one.Tables, one.Drawings}, nil
}

// matches reports whether a result's name, PART/RESULT, is the rule's. The pattern is that of
// [path.Match].
func (r rule) matches(name string) bool {
	ok, err := path.Match(r.pattern, name)
	return err == nil && ok
}
