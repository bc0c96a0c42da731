package zzprobe

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/policy"
	"github.com/faas-infer/faas-infer/sim"
	"github.com/faas-infer/faas-infer/sim/scenario"
)

func TestRun(t *testing.T) {
	name := os.Getenv("SCN")
	sc, err := scenario.Load(name, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pol := range strings.Split(os.Getenv("POL"), ",") {
		sys, err := policy.ByName(pol)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Split(os.Getenv("LOADS"), ",") {
			load, _ := strconv.ParseFloat(l, 64)
			setup, err := sc.Setup(sys, load, 1)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(context.Background(), setup)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%s %s load %v: frag %.1f starts %d stops %d resizes %d unplaced %d passes %d decide %v max %v\n", name, pol, load, r.FragmentPct, r.Starts, r.Stops, r.Resizes, r.Unplaced, r.Passes, r.Decide, r.DecideMax)
			for i := range r.Functions {
				f := &r.Functions[i]
				fmt.Printf("   %-12s viol %.4f req %d missed %d rej %d cold %d p50 %v p99 %v queue %v exec %v instS %.0f idle %.0f", f.Name, f.Violations(), f.Requests, f.Missed, f.Rejected, f.Cold, f.Latency.Quantile(.5), f.Latency.Quantile(.99), f.QueueMean, f.ExecMean, f.InstanceSeconds, f.IdleInstanceSeconds)
				for _, c := range f.Configs {
					if c.Requests > 0 {
						fmt.Printf(" %v:%.0f:%.1f", c.Config, c.InstanceSeconds, float64(c.Requests)/c.InstanceSeconds)
					}
				}
				fmt.Println()
			}
		}
	}
}
