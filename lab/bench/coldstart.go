package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// startupMetrics are the gauges in which an instance reports the parts of its start.
var startupMetrics = []struct {
	metric, name, note string
	// ofStart is set if the part ends before the first request runs.
	ofStart bool
}{
	{"faas_infer_instance_library_seconds", "library", "loading ONNX Runtime", true},
	{"faas_infer_instance_load_seconds", "model", "mapping the prepared model", true},
	{"faas_infer_instance_first_run_seconds", "first_run", "the first execution, be it before the first request or for it", false},
}

// Coldstart measures a function at zero instances: the time from sending a request to its
// answer, and the parts of the instance's start in it. The provider is a separate process,
// as users run it.
func Coldstart(ctx context.Context, o rig.Options, name string, runs int) (*report.Report, error) {
	s, err := rig.NewSubject(name)
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
	if err := d.Deploy(ctx, rig.FunctionName, "subject:latest", 10*time.Second); err != nil {
		return nil, err
	}
	target, err := s.Target(d.URL + "/function/" + rig.FunctionName)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "deploying %s and measuring it\n", name)
	// The first answer comes when the model has been measured.
	if _, err := rig.One(ctx, target); err != nil {
		return nil, err
	}
	var cold, warm []float64
	parts := map[string][]float64{}
	for run := range runs {
		if err := d.Scale(ctx, rig.FunctionName, 0); err != nil {
			return nil, err
		}
		if err := d.Available(ctx, rig.FunctionName, 0); err != nil {
			return nil, err
		}
		took, err := rig.One(ctx, target)
		if err != nil {
			return nil, err
		}
		cold = append(cold, rig.Milliseconds(took))
		if took, err = rig.One(ctx, target); err != nil {
			return nil, err
		}
		warm = append(warm, rig.Milliseconds(took))
		if err := partsOf(ctx, d, parts); err != nil {
			return nil, err
		}
		fmt.Fprintf(o.Log, "cold start %d of %d: %.1f ms\n", run+1, runs, cold[run])
	}
	r := report.New(fmt.Sprintf("bench coldstart --model %s", name), time.Now())
	r.Add("cold.p50_ms", rig.Median(cold), "ms", fmt.Sprintf("from zero instances to the answer, %d runs", runs))
	r.Add("cold.max_ms", slices.Max(cold), "ms", "")
	for _, m := range startupMetrics {
		if len(parts[m.name]) > 0 {
			r.Add("cold."+m.name+"_ms", rig.Median(parts[m.name]), "ms", m.note)
		}
	}
	rest := rig.Median(cold) - rig.Median(warm)
	for _, m := range startupMetrics {
		if m.ofStart {
			rest -= rig.Median(parts[m.name])
		}
	}
	r.Add("cold.process_ms", rest, "ms", "the rest: deciding, starting the process, connecting")
	r.Add("warm.p50_ms", rig.Median(warm), "ms", "the next request")
	return r, nil
}

// partsOf adds the parts of the only instance's start to into.
func partsOf(ctx context.Context, d *rig.Deployed, into map[string][]float64) error {
	records, err := d.Records()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return errors.New("there is no instance")
	}
	return startup(ctx, records[0].Socket, into)
}

// startup reads the parts of an instance's start from its metrics and adds them to into, in
// ms.
func startup(ctx context.Context, socket string, into map[string][]float64) error {
	client := rig.OverUnix(socket)
	defer client.CloseIdleConnections()
	status, text, err := rig.Get(ctx, client, "http://instance/metrics")
	if err != nil || status != http.StatusOK {
		return errors.Join(fmt.Errorf("the instance's metrics: status %d", status), err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, m := range startupMetrics {
			if m.metric != name {
				continue
			}
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("metric %s: %w", name, err)
			}
			into[m.name] = append(into[m.name], seconds*1000)
		}
	}
	return nil
}
