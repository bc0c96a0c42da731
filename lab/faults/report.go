package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// outcome is what one run shows.
type outcome struct {
	verdict         Verdict
	during, outside Share
	recover         time.Duration
	recovered       bool
	leaks           Leaks
	// memory is the provider's largest, in MiB.
	memory float64
	notes  []string
}

// judge sums a history up. The fault lasted from begin to end, and until the functions had
// recovered.
func judge(h *History, f fault, begin, end time.Duration) (o outcome) {
	last := end
	for i := range h.Requests {
		last = max(last, h.Requests[i].Intended)
	}
	o.verdict = Check(h)
	o.recover, o.recovered = h.Recovered(end, last)
	if !o.recovered {
		o.recover = last - end
	}
	o.during, o.outside = h.Shares(begin, end+o.recover)
	return o
}

func (o outcome) String() string {
	v := o.verdict
	recovered := fmt.Sprintf("recovered after %v", o.recover)
	if !o.recovered {
		recovered = fmt.Sprintf("not recovered in %v", o.recover.Round(time.Millisecond))
	}
	text := fmt.Sprintf("of %d requests %d accepted, %d lost, %d wrong, %d unbounded (%d sent late); %s; leaked: %s; the provider had %.0f MiB at most", v.Requests, v.Accepted, v.Lost, v.Wrong, v.Unbounded, v.SentLate, recovered, o.leaks, o.memory)
	if v.Example != nil {
		text += fmt.Sprintf("; for example %+v", *v.Example)
	}
	if len(o.notes) > 0 {
		text += "; " + strings.Join(o.notes, ", ")
	}
	return text
}

// total sums runs up.
type total struct {
	runs, unrecovered int
	verdict           Verdict
	during, outside   Share
	recover           time.Duration
	leaks             Leaks
	memory            float64
	notes             []string
	notRun            []error
}

func (t *total) add(o outcome) {
	t.runs++
	t.count(o.verdict)
	t.during, t.outside, t.leaks = t.during.plus(o.during), t.outside.plus(o.outside), t.leaks.plus(o.leaks)
	t.recover, t.memory = max(t.recover, o.recover), max(t.memory, o.memory)
	if !o.recovered {
		t.unrecovered++
	}
	for _, note := range o.notes {
		if !slices.Contains(t.notes, note) {
			t.notes = append(t.notes, note)
		}
	}
}

func (t *total) count(v Verdict) {
	sum := &t.verdict
	sum.Requests, sum.Accepted = sum.Requests+v.Requests, sum.Accepted+v.Accepted
	sum.Lost, sum.Wrong, sum.Unbounded = sum.Lost+v.Lost, sum.Wrong+v.Wrong, sum.Unbounded+v.Unbounded
	sum.SentLate += v.SentLate
	sum.Failed, sum.Refused, sum.Unsent, sum.Repeated = sum.Failed+v.Failed, sum.Refused+v.Refused, sum.Unsent+v.Unsent, sum.Repeated+v.Repeated
	if sum.Example == nil {
		sum.Example = v.Example
	}
}

// join adds another fault's total.
func (t *total) join(o total) {
	t.runs += o.runs
	t.count(o.verdict)
	t.leaks, t.memory = t.leaks.plus(o.leaks), max(t.memory, o.memory)
	t.notRun = append(t.notRun, o.notRun...)
}

// report adds a fault's figures.
func (t *total) report(r *report.Report, f fault) {
	if len(t.notRun) > 0 {
		r.Add(f.name+".not_run", float64(len(t.notRun)), "runs", "not run: "+errors.Join(t.notRun...).Error())
	}
	if t.runs == 0 {
		return
	}
	v := t.verdict
	r.Add(f.name+".lost", float64(v.Lost), "requests", fmt.Sprintf("of %d accepted, never answered or called back; runs: %d", v.Accepted, t.runs))
	r.Add(f.name+".wrong", float64(v.Wrong), "answers", "another's, one too many, or what the fault's sentence rules out")
	r.Add(f.name+".unbounded", float64(v.Unbounded), "requests", fmt.Sprintf("answered later than the SLO and a second; %d of them the generator sent later than the SLO", v.SentLate))
	r.Add(f.name+".within_slo_pct", t.outside.percent(), "%", fmt.Sprintf("of %d requests outside the fault", t.outside.all))
	r.Add(f.name+".within_slo_pct_during", t.during.percent(), "%", fmt.Sprintf("of %d from its beginning until all was well; of all, %d failed, %d refused, %d not sent, %d called back again", t.during.all, v.Failed, v.Refused, v.Unsent, v.Repeated))
	from := "end"
	if f.lasts == 0 {
		from = "beginning"
	}
	note := fmt.Sprintf("from the fault's %s to %v in which all is within the SLO; the longest of %d", from, window, t.runs)
	if t.unrecovered > 0 {
		note = fmt.Sprintf("not recovered in %d of %d runs: it lasts longer than this", t.unrecovered, t.runs)
	}
	r.Add(f.name+".recover_s", t.recover.Seconds(), "s", note)
	note = t.leaks.String()
	if len(t.notes) > 0 {
		note += "; " + strings.Join(t.notes, ", ")
	}
	r.Add(f.name+".leaked", t.leaks.sum(), "", note)
	r.Add(f.name+".memory", t.memory, "MiB", fmt.Sprintf("the provider's, at most; the bound is %d", maxMiB))
}

// reportAll adds the sums over all faults.
func (t *total) reportAll(r *report.Report) {
	note := fmt.Sprintf("over all faults, %d runs", t.runs)
	if n := len(t.notRun); n > 0 {
		note += fmt.Sprintf("; %d runs are missing", n)
	}
	r.Add("lost.all", float64(t.verdict.Lost), "requests", note)
	r.Add("wrong.all", float64(t.verdict.Wrong), "answers", "")
	r.Add("unbounded.all", float64(t.verdict.Unbounded), "requests", fmt.Sprintf("%d of them the generator sent later than the SLO", t.verdict.SentLate))
	r.Add("leaked.all", t.leaks.sum(), "", t.leaks.String())
	r.Add("memory.all", t.memory, "MiB", fmt.Sprintf("the provider's largest; the bound is %d, what is beyond it counts as leaked", maxMiB))
}

// reportLag adds how late the generator itself was.
func (u *bench) reportLag(r *report.Report) {
	if len(u.lags) == 0 {
		return
	}
	slices.Sort(u.lags)
	late, _ := slices.BinarySearch(u.lags, load.LateLag+1)
	r.Add("generator.lag_ms", rig.Milliseconds(u.lags[(len(u.lags)*99+99)/100-1]), "ms",
		fmt.Sprintf("99th percentile, part of every latency; %d of %d requests were sent more than %v late, the latest %v", len(u.lags)-late, len(u.lags), load.LateLag, u.lags[len(u.lags)-1].Round(time.Millisecond)))
	u.callbacks.mu.Lock()
	defer u.callbacks.mu.Unlock()
	r.Add("callbacks.late", float64(u.callbacks.late), "callbacks", "came after their run was judged, and so count as lost there if they are the first")
}
