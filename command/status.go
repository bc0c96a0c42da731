package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/history"
)

// functionStats are the figures of a function in the answer to GET /system/stats that status prints.
type functionStats struct {
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
	SLOms     float64 `json:"slo_ms"`
	// State is ok, misses, idle, starting or broken, and Sentence says why, "" if all is well.
	State    string `json:"state"`
	Sentence string `json:"sentence"`
	// Revision is the revision that was deployed last, and the one that answers.
	Revision struct {
		Asked   string `json:"asked"`
		Serving string `json:"serving"`
	} `json:"revision"`
	// Minute is about the last minute. A value is nil if there were no requests.
	Minute struct {
		Rate       float64  `json:"rate_per_s"`
		Attainment *float64 `json:"attainment_pct"`
		P99        *float64 `json:"p99_ms"`
	} `json:"minute"`
	Carries float64 `json:"carries_per_s"`
	// Replicas are the instances planned, and Available those of them that are ready, parked ones too.
	Replicas  int             `json:"replicas"`
	Available int             `json:"available_replicas"`
	Instances []instanceStats `json:"instances"`
}

// instanceStats are instances of a function with the same batch size and shares.
type instanceStats struct {
	Batch int `json:"batch"`
	CPU   int `json:"cpu_millicores"`
	GPU   int `json:"gpu_pct"`
	Count int `json:"count"`
}

// newStatusCommand returns "faas-infer status".
func newStatusCommand() *cobra.Command {
	a := newFunctionsClient()
	var watch bool
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show how functions do: state, objective, attainment, rate, instances, problem",
		Long: `status shows the functions of a provider, or those that you name. IN TIME is the part of
the last minute's requests that were answered within the objective, and RATE their number per
second. READY counts the instances that are ready or parked, and those that are planned. With -o wide, there are
also the instances as ⟨batch,CPU,GPU⟩, the 99th percentile of the last minute's latencies, the rate
that the instances carry, and the revision that serves, with the deployed one if that is another.

  ok        requests are answered within the objective
  misses    they are not
  idle      there is no instance; a request starts one
  starting  instances start, or the times of the model are found out
  broken    the function is not served as deployed: see PROBLEM`,
		Example: `  faas-infer status
  faas-infer status mnist resnet-50.team-a -o wide
  faas-infer status --watch`,
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, names []string) error {
			return a.printAgain(c, watch, func() (func() error, error) {
				rows, raw, err := a.status(c.Context(), names)
				return func() error {
					return a.out.Print(c.OutOrStdout(), raw, func() *report.Table { return statusTable(rows) })
				}, err
			})
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "all")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print again every two seconds, until Ctrl-C")
	return c
}

// watchInterval is the time between two tables with --watch.
const watchInterval = 2 * time.Second

// printAgain fetches and prints, with --watch every two seconds until Ctrl-C. A terminal is cleared before each print.
func (a *functionsClient) printAgain(c *cobra.Command, watch bool, fetch func() (show func() error, err error)) error {
	out := c.OutOrStdout()
	clear := watch && report.Interactive(out) && !a.out.Raw()

	for {
		show, err := fetch()
		if err != nil {
			return err
		}
		if clear {
			fmt.Fprint(out, "\x1b[H\x1b[2J")
		}
		if err := show(); err != nil {
			return err
		}

		if !watch || !backoff.Wait(c.Context(), watchInterval) {
			return c.Context().Err()
		}
		if !clear {
			fmt.Fprintln(out)
		}
	}
}

// statusRow is a function's row: its figures, and its instances as numbers.
type statusRow struct {
	functionStats
	ready, planned int
}

// status returns the rows of the named functions, or of all, and what JSON and YAML print.
func (a *functionsClient) status(ctx context.Context, names []string) (rows []statusRow, raw any, err error) {
	var answer struct {
		Functions []json.RawMessage `json:"functions"`
	}
	// The route takes * for all namespaces.
	_, err = a.fetch(ctx, http.MethodGet, "/stats?namespace="+url.QueryEscape(cmp.Or(a.namespace, "*")), nil, &answer)
	if answered(err, http.StatusNotFound) { // Another provider of OpenFaaS.
		return a.plainStatus(ctx, names)
	}
	if err != nil {
		return nil, nil, err
	}
	kept := []json.RawMessage{}
	for _, text := range answer.Functions {
		var f functionStats
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, nil, fmt.Errorf("the provider's figures of a function: %w", err)
		}
		if !a.named(names, f.Name, f.Namespace) {
			continue
		}
		rows, kept = append(rows, statusRow{functionStats: f, ready: f.Available, planned: f.Replicas}), append(kept, text)
	}
	return rows, kept, a.missing(ctx, names, rows)
}

// plainStatus returns what OpenFaaS's own routes say: neither latencies nor rates.
func (a *functionsClient) plainStatus(ctx context.Context, names []string) (rows []statusRow, raw any, err error) {
	all, err := a.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	all = slices.DeleteFunc(all, func(f types.FunctionStatus) bool { return !a.named(names, f.Name, f.Namespace) })
	for _, f := range all {
		row := statusRow{ready: int(f.AvailableReplicas), planned: int(f.Replicas)}
		row.Name, row.Namespace, row.SLOms = f.Name, f.Namespace, milliseconds(annotation.Objective(f))
		row.Sentence = cmp.Or(note(f, annotation.InferProblem), note(f, annotation.InferProgress))
		row.Minute.Rate = -1
		switch {
		case note(f, annotation.InferProblem) != "":
			row.State = "broken"
		case row.Sentence != "" || row.ready < row.planned:
			row.State = "starting"
		case row.planned == 0:
			row.State = "idle"
		default:
			row.State = "ok"
		}
		rows = append(rows, row)
	}
	return rows, all, a.missing(ctx, names, rows)
}

// named reports whether a function is one of the named ones, or none is named.
func (a *functionsClient) named(names []string, function, namespace string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		f, n := a.address(name)
		return f == function && n == namespace
	})
}

// missing returns an error if a named function is not among the rows, or if there is no such namespace.
func (a *functionsClient) missing(ctx context.Context, names []string, rows []statusRow) error {
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r statusRow) bool { return a.named([]string{name}, r.Name, r.Namespace) }) {
			return a.unknown(ctx, name, errors.New("it is not in the provider's answer"))
		}
	}
	if len(rows) == 0 {
		return a.checkNamespace(ctx)
	}
	return nil
}

func statusTable(rows []statusRow) *report.Table {
	t := &report.Table{Columns: []report.Column{{Title: "NAME"}, {Title: "STATE"}, {Title: "OBJECTIVE", Right: true}, {Title: "IN TIME", Right: true},
		{Title: "RATE", Right: true}, {Title: "READY", Right: true}, {Title: "INSTANCES", Wide: true}, {Title: "P99", Right: true, Wide: true},
		{Title: "CARRY", Right: true, Wide: true}, {Title: "REVISION", Wide: true}, {Title: "PROBLEM", Long: true}}}
	for _, r := range rows {
		name := r.Name
		if r.Namespace != provider.DefaultNamespace {
			name = provider.FullName(r.Name, r.Namespace)
		}
		inTime, p99, rate := "-", "-", "-"
		if r.Minute.Attainment != nil {
			inTime = fmt.Sprintf("%.1f %%", *r.Minute.Attainment)
		}
		if r.Minute.P99 != nil {
			p99 = fmt.Sprintf("%.1fms", *r.Minute.P99)
		}
		if r.Minute.Rate >= 0 {
			rate = history.Rate(r.Minute.Rate) + "/s"
		}
		t.Add(name, r.State, dashed(time.Duration(r.SLOms*float64(time.Millisecond))), inTime, rate, fmt.Sprintf("%d/%d", r.ready, r.planned),
			r.blocks(), p99, known(r.Carries, history.Rate(r.Carries)+"/s"), r.revisions(), r.Sentence)
	}
	return t
}

// blocks shows instances by their shares: "2 × ⟨8,1000m,0%⟩".
func (r statusRow) blocks() string {
	var parts []string
	for _, in := range r.Instances {
		parts = append(parts, fmt.Sprintf("%d × ⟨%d,%dm,%d%%⟩", in.Count, in.Batch, in.CPU, in.GPU))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// revisions shows the revision that serves, and the one that was deployed if that is another.
func (r statusRow) revisions() string {
	if !r.swapping() {
		return cmp.Or(r.Revision.Asked, "-")
	}
	return r.Revision.Serving + ", deployed " + r.Revision.Asked
}

// swapping reports whether another revision answers than the one that was deployed last.
func (r statusRow) swapping() bool {
	return r.Revision.Serving != "" && r.Revision.Serving != r.Revision.Asked
}
