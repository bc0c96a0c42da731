package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling"
)

// verdict is what "model check --verdict" prints, and POST /system/upload answers about a model.
type verdict struct {
	Name string `json:"name"`
	// OK: the objective can be met, or there is none. Sentences say so, and why not.
	OK        bool     `json:"ok"`
	Sentences []string `json:"sentences"`
	// Reach says for which sizes of requests the objective holds, "" if they have one size.
	Reach   string        `json:"reach,omitempty"`
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []tensor.Info `json:"outputs"`
	// Memory is what an instance takes in bytes, SmallestSLO the smallest objective that can be met, in ms.
	Memory      int64           `json:"memory_bytes"`
	SmallestSLO float64         `json:"smallest_slo_ms,omitempty"`
	Configs     []verdictConfig `json:"configs"`
	Cheapest    *verdictConfig  `json:"cheapest,omitempty"`
}

// verdictConfig is a config of a model: the time of a full batch, the highest rate of an instance, and what a
// request costs at that rate.
type verdictConfig struct {
	Batch  int     `json:"batch"`
	CPU    int     `json:"cpu_millicores"`
	ExecMS float64 `json:"exec_ms"`
	Rate   float64 `json:"rate_per_s"`
	Cost   float64 `json:"core_ms_per_request"`
	InTime bool    `json:"in_time"`
}

func (c checkedConfig) verdict() verdictConfig {
	return verdictConfig{c.Config.Batch, c.Config.CPU, milliseconds(c.Exec), c.rate, c.cost, c.meets}
}

// said returns the verdict.
func (m checkedModel) said(name, texts string, p *profiler.Profile, reach string, inputs, outputs []tensor.Info) verdict {
	v := verdict{Name: name, OK: true, Reach: reach, Inputs: inputs, Outputs: outputs, Memory: m.memory, Configs: []verdictConfig{}}
	meeting := 0
	for _, c := range m.configs {
		v.Configs = append(v.Configs, c.verdict())
		if c.meets {
			meeting++
		}
	}
	if len(m.configs) > 0 {
		v.SmallestSLO = milliseconds(m.smallest())
	}
	best, ok := m.cheapest()
	if ok {
		cheapest := best.verdict()
		v.Cheapest = &cheapest
	}
	switch err := m.verdict(); {
	case err != nil:
		v.OK, v.Sentences = false, append(v.Sentences, sentence(err.Error()))
	case ok && m.slo > 0:
		v.Sentences = append(v.Sentences, m.met(meeting, best))
	case ok:
		v.Sentences = append(v.Sentences, fmt.Sprintf("The smallest objective that can be met here is about %v; an instance takes about %d MiB.", m.smallest(), m.memory>>20))
	}
	if about := aboutBatches(p); about != "" {
		v.Sentences = append(v.Sentences, about)
	}
	if texts != "" {
		v.Sentences = append(v.Sentences, "It "+texts+".")
	}
	return v
}

// smallest is the smallest objective that can be met, about. There must be a config.
func (m checkedModel) smallest() time.Duration {
	fastest := slices.MinFunc(m.configs, func(a, b checkedConfig) int { return int(a.Exec - b.Exec) })
	least := time.Duration(float64(fastest.Exec) / (1 - scaling.DefaultSettings().Reserve))
	return least.Round(100*time.Microsecond) + 100*time.Microsecond
}

// sentence makes an error's text a sentence.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
