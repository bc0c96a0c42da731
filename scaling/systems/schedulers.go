package systems

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// scheduler is one way to choose instances' configs and places, as --scheduler names it.
type scheduler struct {
	name, says string
	// options returns the options by which it chooses. scaler makes its engine.
	options func() capacity.Options
	scaler  func(scaling.Settings) Scaler
	// like, if not "", is the system whose engine it is, with all settings.
	like string
}

// schedulers lists all schedulers, that of [Default] first. A new one is a row here.
var schedulers = []scheduler{
	{name: "joint", says: "for all functions at once", options: capacity.Production, scaler: engine},
	{name: "greedy", says: "one instance after the other (INFless' Algorithm 1, without what production cannot use)", options: capacity.Greedy, scaler: engine},
	{name: "printed", says: "as INFless prints it: Algorithm 1, Eq. 1 with its rounding and Eq. 10, once a second and without headroom; --policy infless and --cold-start lsth are the rest of INFless", like: INFless},
}

// engine returns an engine of package scaling, which plans by its options.
func engine(s scaling.Settings) Scaler { return scaling.New(s) }

// Schedulers lists the names of the schedulers, the default first.
func Schedulers() []string {
	names := make([]string, 0, len(schedulers))
	for _, s := range schedulers {
		names = append(names, s.name)
	}
	return names
}

// AboutSchedulers describes each scheduler, for a flag's help.
func AboutSchedulers() string {
	var parts []string
	for _, s := range schedulers {
		parts = append(parts, s.name+", "+s.says)
	}
	return strings.Join(parts, ", or ")
}

// WithScheduler returns the system with another scheduler. An error lists the known ones.
func (s System) WithScheduler(name string) (System, error) {
	i := slices.IndexFunc(schedulers, func(x scheduler) bool { return x.name == name })
	if i < 0 {
		return System{}, fmt.Errorf("%q: it is %s", name, strings.Join(Schedulers(), " or "))
	}
	if like := schedulers[i].like; like != "" {
		other, err := ByName(like)
		if err != nil {
			return System{}, err
		}
		s.rules.Settings, s.rules.Period, s.rules.Scaler = other.rules.Settings, other.rules.Period, other.rules.Scaler
		return s, nil
	}
	s.rules.Settings.Options, s.rules.Scaler = schedulers[i].options(), schedulers[i].scaler
	return s, nil
}

// With returns the system with its engine's settings changed.
func (s System) With(change func(*scaling.Settings)) System {
	change(&s.rules.Settings)
	return s
}

// Through returns the system with wrap around its scalers, for whoever compares what an engine is
// asked and plans with what a driver does of it.
func (s System) Through(wrap func(Scaler) Scaler) System {
	made := s.rules.Scaler
	if made == nil {
		made = engine
	}
	s.rules.Scaler = func(settings scaling.Settings) Scaler { return wrap(made(settings)) }
	return s
}
