package command

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// lsth is the name of INFless' cold-start policy.
const lsth = "lsth"

// The engines of --longest-path: those whose models' times are predicted from operators.
const (
	engineCPU = "onnxruntime"
	engineGPU = "cuda"
)

// inflessFlags are INFless' own parameters (ASPLOS 2022), under its names.
type inflessFlags struct {
	alpha, beta, gamma float64
	// longest has the engines of which COP takes the longest path.
	longest []string
}

// register adds the flags.
func (f *inflessFlags) register(flags *pflag.FlagSet) {
	s := scaling.DefaultSettings()
	flags.Float64Var(&f.alpha, "alpha", s.Alpha, "α of INFless §3.2, a part from 0 to 1, without unit: instances are released once the load is below α·R_max + (1−α)·R_min, where R_min and R_max are the least and the highest load in requests/s that all instances of a function serve in time. The higher α, the sooner a falling load releases instances")
	flags.Float64Var(&f.beta, "beta", s.Beta, "β of INFless §3.4, what a core is worth in % of a GPU, above 0 and up to 100: an instance with c cores and g % of a GPU counts βc + g. A core with 80 GFLOPS beside a GPU with 13,400 has 80/134 = 0.6. Without GPUs it changes nothing")
	flags.Float64Var(&f.gamma, "gamma", coldstart.DefaultGamma, "γ of INFless §3.5, a part above 0 and up to 1, without unit: the weight of the long-term histogram of idle times against the short-term one, only with --cold-start "+lsth+". The lower γ, the sooner keep-alive times follow a change")
	flags.StringSliceVar(&f.longest, "longest-path", nil, "engines, "+engineCPU+" or "+engineGPU+", that run the branches of a model at the same time: a model's predicted time is then that of the longest path through its operators (INFless §3.3). Without it the times of all operators are added, because both engines of faas-infer run one operator after another; for them the longest path is too short a time until the first executions correct it")
}

// check refuses values that make no sense with a cold-start policy.
func (f *inflessFlags) check(coldStart string, given func(string) bool) error {
	if given == nil {
		return nil
	}
	switch {
	case !(f.alpha >= 0 && f.alpha <= 1):
		return fmt.Errorf("--alpha %v: it must be from 0 to 1", f.alpha)
	case !(f.beta > 0 && f.beta <= 100):
		return fmt.Errorf("--beta %v: it must be above 0 and at most 100, what a core is worth in %% of a GPU", f.beta)
	case !(f.gamma > 0 && f.gamma <= 1):
		return fmt.Errorf("--gamma %v: it must be above 0 and at most 1", f.gamma)
	case given("gamma") && coldStart != lsth:
		return fmt.Errorf("--gamma is for --cold-start %s; %s has no γ", lsth, coldStart)
	}
	for _, engine := range f.longest {
		if engine != engineCPU && engine != engineGPU {
			return fmt.Errorf("--longest-path %q: it must be %s or %s; times of other engines are measured, not predicted", engine, engineCPU, engineGPU)
		}
	}
	return nil
}

// apply returns the system with the given values.
func (f *inflessFlags) apply(system systems.System, given func(string) bool) systems.System {
	if given == nil {
		return system
	}
	return system.With(func(s *scaling.Settings) {
		if given("alpha") {
			s.Alpha = f.alpha
		}
		if given("beta") {
			s.Beta = f.beta
		}
	})
}

// takesLongest reports whether COP takes the longest path for an engine.
func (f *inflessFlags) takesLongest(engine string) bool { return slices.Contains(f.longest, engine) }
