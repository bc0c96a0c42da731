package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Functions measures a provider with each ordinary functions, which have one instance each,
// and as many inference functions at zero instances. It measures the time to list them and
// the memory of the provider and of the ordinary functions' instances.
func Functions(ctx context.Context, o rig.Options, each int) (*report.Report, error) {
	s, err := rig.NewSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := o.Provider(ctx, s.Dir)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	if err := d.Bundle(s, "subject:latest"); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "deploying %d inference and %d ordinary functions\n", each, each)
	for i := range each {
		if err := d.Deploy(ctx, fmt.Sprintf("model-%d", i), "subject:latest", 100*time.Millisecond); err != nil {
			return nil, err
		}
		if err := d.DeployProgram(ctx, fmt.Sprintf("program-%d", i), "cat"); err != nil {
			return nil, err
		}
	}
	for i := range each {
		if err := d.Available(ctx, fmt.Sprintf("program-%d", i), 1); err != nil {
			return nil, err
		}
	}
	r := report.New("bench functions", time.Now())
	if err := list(ctx, d, r, 2*each); err != nil {
		return nil, err
	}
	if err := watchdogs(d, r); err != nil {
		return nil, err
	}
	return r, atRest(ctx, d, r, "provider", fmt.Sprintf("%d ordinary functions with an instance each, %d inference functions at zero", each, each))
}

// list times a gateway's request for the list of functions.
func list(ctx context.Context, d *rig.Deployed, r *report.Report, want int) error {
	var times []float64
	for range 100 {
		began := time.Now()
		status, text, err := rig.Get(ctx, http.DefaultClient, d.URL+"/system/functions?namespace=openfaas-fn")
		if err != nil {
			return err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
		var functions []types.FunctionStatus
		if err := json.Unmarshal(text, &functions); err != nil || status != http.StatusOK || len(functions) != want {
			return fmt.Errorf("the list of %d functions: status %d, %d functions, %v", want, status, len(functions), err)
		}
	}
	slices.Sort(times)
	note := fmt.Sprintf("of %d functions, 100 times", want)
	r.Add("list.p50_ms", times[len(times)/2], "ms", note)
	r.Add("list.max_ms", times[len(times)-1], "ms", note)
	return nil
}

// watchdogs adds up the instances' memory. Each shared page is divided among the processes
// that share it.
func watchdogs(d *rig.Deployed, r *report.Report) error {
	records, err := d.Records()
	if err != nil {
		return err
	}
	var total float64
	for _, in := range records {
		held, err := rig.Mapped(in.Process.PID)
		if err != nil {
			return err
		}
		total += held["Pss"]
	}
	r.Add("instances.count", float64(len(records)), "instances", "of ordinary functions")
	r.Add("instances.pss_mib", total, "MiB", "proportional set size of them all")
	return nil
}
