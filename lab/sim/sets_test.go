package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// sets are a model that is cut over n members, of which a node holds one.
type sets struct {
	model
	n, concurrency int
}

func (s sets) Configs() (configs []cluster.Config) {
	for b := 1; b <= 8; b *= 2 {
		configs = append(configs, cluster.Config{
			Batch: b, Parts: s.n, Concurrency: s.concurrency, Resources: cluster.Resources{CPU: s.n * 1000, Memory: int64(s.n) * 10 << 30},
		})
	}
	return configs
}

func (s sets) Exec(c cluster.Config, b int) (time.Duration, bool) {
	return s.base + time.Duration(b)*s.each, b >= 1 && b <= 8
}

// cut is a setup of 8 nodes and functions of sets at these rates.
func cut(t *testing.T, n, concurrency int, rates ...float64) Setup {
	s := Setup{System: system(t, systems.Default), Seed: 1, Duration: 40 * time.Second, Warmup: 20 * time.Second}
	for i := range 8 {
		s.Nodes = append(s.Nodes, cluster.Node{Name: fmt.Sprint("n", i), Total: cluster.Resources{CPU: 4000, Memory: 16 << 30}})
	}
	for i, rate := range rates {
		s.Functions = append(s.Functions, Function{
			Function: systems.Function{Name: fmt.Sprint("f", i), SLO: 500 * ms, Percentile: 99, MaxBatch: 8},
			Times:    sets{model{base: 40 * ms, each: 10 * ms}, n, concurrency}, Arrivals: poisson(rate, uint64(i)), Start: 2 * time.Second,
		})
	}
	return s
}

// Under production's policies two functions whose models only fit as sets of four nodes fill eight.
// Their requests are in time, one by one and as a flow.
func TestSetsServe(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		s := cut(t, 4, 0, 15, 15)
		s.Fluid = fluid
		result := simulate(t, s)
		for _, f := range result.Functions {
			if f.Violations() > 0.01 || f.Served < 250 {
				t.Errorf("fluid %v, %s: %d of %d served, %.2f %% late", fluid, f.Name, f.Served, f.Requests, 100*f.Violations())
			}
		}
		if result.PeakInstances != 2 || result.ActiveNodeSeconds != 8*20 {
			t.Errorf("fluid %v: %d instances, on %v nodes", fluid, result.PeakInstances, result.ActiveNodeSeconds/20)
		}
	}
}

// A set serves twice as much with a concurrency of two: of 120/s one at a time cannot serve more
// than 8 in 120 ms, 66.7/s.
func TestConcurrentSetsServeMore(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		for concurrency, enough := range map[int]bool{0: false, 3: true} {
			s := cut(t, 8, concurrency, 120)
			s.Fluid = fluid
			f := simulate(t, s).Functions[0]
			if ok := f.Violations() < 0.02; ok != enough {
				t.Errorf("fluid %v, concurrency %d: %d of %d served, %.1f %% late", fluid, concurrency, f.Served, f.Requests, 100*f.Violations())
			}
		}
	}
}
