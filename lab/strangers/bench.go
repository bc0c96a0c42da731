// Package strangers serves models that this project did not make, through a provider, and
// compares each answer with ONNX Runtime's in Python: ONNX files that packages on PyPI ship,
// and random graphs. It installs no package and runs no code of one. Begin with [Bench.Run].
package strangers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// Bench are the options of a run.
type Bench struct {
	// Models matches the names of the models to serve.
	Models *regexp.Regexp
	// Random is the number of random graphs, Seed what they and all requests are made of.
	Random int
	Seed   uint64
	// NoFetch leaves out the files of packages.
	NoFetch bool
	// Keep leaves the random graphs and the provider's state on the disk.
	Keep bool
	// SLO is the objective of each function. Patience bounds how long a model may take until
	// its first answer, and each later answer.
	SLO, Patience time.Duration
	// Rounds is how often each of the clients that send at the same time sends each request.
	Rounds int
}

// small is the size below which a model's first answer counts, in bytes.
const small = 50e6

// run is one run.
type run struct {
	Bench
	rig.Options
	dir       string
	reference *Reference
	server    *server
	starts    int
	report    *report.Report
}

// Run serves all models, one after the other. What was measured before an error is in the
// report.
func (b Bench) Run(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
	if b.Random < 0 || b.SLO <= 0 || b.Patience <= 0 || b.Rounds < 1 {
		return nil, errors.New("--slo and --patience must be positive, --rounds at least 1, and --random not negative")
	}
	dir, err := os.MkdirTemp("", "faas-infer-strangers-")
	if err != nil {
		return nil, err
	}
	if b.Keep {
		fmt.Fprintf(o.Log, "the models and the provider's state are kept in %s\n", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	reference, err := NewReference(ctx)
	if err != nil {
		return nil, err
	}
	defer reference.Close()
	r := &run{Bench: b, Options: o, dir: dir, reference: reference,
		report: report.New(fmt.Sprintf("bench strangers --random %d --seed %d --slo %v", b.Random, b.Seed, b.SLO), time.Now())}
	defer func() {
		if r.server != nil {
			r.server.Stop()
		}
	}()
	subjects, missing, err := r.subjects(ctx)
	if err != nil {
		return nil, err
	}
	t := tally{missing: missing}
	draw := report.ProgressBar(o.Log, "serving")
	for i, s := range subjects {
		draw(i, len(subjects))
		if err := r.one(ctx, s, &t); err != nil {
			t.add(r.report)
			return r.report, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	draw(len(subjects), len(subjects))
	t.add(r.report)
	return r.report, nil
}

// subjects lists the models to serve, and what could not be had.
func (r *run) subjects(ctx context.Context) (all []*subject, missing []string, err error) {
	if !r.NoFetch {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, nil, err
		}
		if all, missing, err = fetch(ctx, filepath.Join(cache, "faas-infer", "strangers"), r.Bench.Models, r.Log); err != nil {
			return nil, nil, err
		}
	}
	dir := filepath.Join(r.dir, "random")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	for i := range r.Random {
		s, err := randomSubject(dir, r.Seed, i)
		if err != nil {
			return nil, nil, err
		}
		if r.Bench.Models.MatchString(s.name) {
			all = append(all, s)
		}
	}
	return all, missing, nil
}

// one serves a model, if ONNX Runtime runs it.
func (r *run) one(ctx context.Context, s *subject, t *tally) error {
	requests := s.requests(r.Seed)
	answers, refused, err := r.reference.Run(ctx, s.file, requests)
	if err != nil {
		return err
	}
	if refused != "" {
		t.notRun = append(t.notRun, result{subject: s, outcome: outcome{said: clean(refused)}})
		return nil
	}
	if err := r.provider(ctx); err != nil {
		return err
	}
	remove, err := r.server.bundle(s)
	if err != nil {
		return err
	}
	o, err := r.server.serve(ctx, s, requests, answers)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-r.server.Exited():
		o.kind, o.said = crashed, "the provider ended: "+clean(rig.LastLine(r.server.Said()))
		r.server = nil
	default:
		if err != nil {
			o.kind, o.said = crashed, "the provider fails: "+clean(err.Error())
			r.server.Stop()
			r.server = nil
		}
	}
	if err := remove(); err != nil {
		return err
	}
	if o.kind != right {
		fmt.Fprintf(r.Log, "%s: %s\n", s.name, o.kind)
	}
	t.results = append(t.results, result{subject: s, outcome: o})
	return nil
}

// provider starts a provider if none runs.
func (r *run) provider(ctx context.Context) error {
	if r.server != nil {
		return nil
	}
	r.starts++
	dir := filepath.Join(r.dir, fmt.Sprintf("provider%d", r.starts))
	at, err := r.Provider(ctx, dir, "--prepared", filepath.Join(dir, "prepared"), "--cold-wait", r.Patience.String())
	if err != nil {
		return err
	}
	r.server = &server{Deployed: at, client: &http.Client{}, patience: r.Patience, slo: r.SLO, rounds: r.Rounds}
	return nil
}

// result is what came of one model.
type result struct {
	*subject
	outcome
}

// tally counts results.
type tally struct {
	results []result
	// notRun are the models that ONNX Runtime refuses, with its reasons.
	notRun  []result
	missing []string
}

// add adds all figures to a report.
func (t *tally) add(r *report.Report) {
	count := func(of func(result) bool) (n float64) {
		for _, one := range t.results {
			if of(one) {
				n++
			}
		}
		return n
	}
	for _, group := range []struct {
		name   string
		random bool
	}{{"shipped", false}, {"random", true}} {
		member := func(o result) bool { return o.random == group.random }
		r.Add(group.name+".right", count(func(o result) bool { return member(o) && o.kind == right }), "models", "each answer is ONNX Runtime's")
		r.Add(group.name+".runs", count(member), "models", "ONNX Runtime runs them")
	}
	is := func(kind string) float64 { return count(func(o result) bool { return o.kind == kind }) }
	r.Add("wrong", is(wrong), "models", "to reach: 0")
	r.Add("crashed", is(crashed), "models", "to reach: 0")
	r.Add("refused_without_way", is(refusedWithoutWay), "models", "to reach: 0")
	r.Add("refused", is(refused), "models", "with what to do")
	r.Add("unanswered", is(unanswered), "models", "no answer in time")
	var first []float64
	for _, one := range t.results {
		if one.first > 0 && one.bytes < small {
			first = append(first, one.first.Seconds())
		}
	}
	note := fmt.Sprintf("from deployment to the first right answer, of the %d models below 50 MB that gave one", len(first))
	for _, q := range []struct {
		name string
		part float64
	}{{"p50", 0.5}, {"p90", 0.9}} {
		if len(first) > 0 {
			r.Add("first_answer_s."+q.name, profiler.Quantile(first, q.part), "s", note)
		}
	}
	for _, kind := range faultKinds {
		for _, one := range t.results {
			if one.kind == kind {
				r.Add("model."+one.name, 0, kind, one.said)
			}
		}
	}
	for _, one := range t.notRun {
		r.Add("not_run."+one.name, 1, "model", "ONNX Runtime: "+one.said)
	}
	for _, what := range t.missing {
		r.Add("missing", 1, "model or package", what)
	}
}
