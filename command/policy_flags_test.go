package command

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// parsed returns the parsed flags with checked names.
func parsed(t *testing.T, args ...string) (*ProviderFlags, error) {
	t.Helper()
	f, flags := &ProviderFlags{}, pflag.NewFlagSet("provider", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f, f.checkNames()
}

func TestColdStartFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, systems.Default},
		{[]string{"--keep-alive", "1m"}, "fixed"},
		{[]string{"--cold-start", "fixed"}, "fixed"},
		{[]string{"--cold-start", "fixed", "--keep-alive", "1m"}, "fixed"},
		{[]string{"--cold-start", "lsth"}, "lsth"},
		{[]string{"--cold-start", "hhp"}, "hhp"},
	} {
		f, err := parsed(t, c.args...)
		if err != nil || f.coldStart != c.want {
			t.Errorf("%v: %q, %v, want %q", c.args, f.coldStart, err, c.want)
		}
		if p, err := f.cold(); err != nil || p == nil {
			t.Errorf("%v: %v", c.args, err)
		}
	}
	f, err := parsed(t, "--keep-alive", "0")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := f.cold(); err != nil || p.Windows(time.Now(), "f").KeepAlive != 0 {
		t.Errorf("a keep-alive of 0: %v", err)
	}
}

func TestPolicyFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--cold-start", "arima"}, `--cold-start "arima": it must be faas-infer, fixed, hhp, hhp-window or lsth`},
		{[]string{"--cold-start", "lsth", "--keep-alive", "1m"}, "--keep-alive is for --cold-start fixed"},
		{[]string{"--scheduler", "random"}, `--scheduler "random": it is joint or greedy or printed`},
		{[]string{"--policy", "best"}, `"best"`},
		{[]string{"--alpha", "1.5"}, "--alpha 1.5: it must be from 0 to 1"},
		{[]string{"--alpha", "NaN"}, "--alpha NaN"},
		{[]string{"--beta", "0"}, "--beta 0: it must be above 0 and at most 100"},
		{[]string{"--beta", "-1"}, "--beta -1"},
		{[]string{"--cold-start", "lsth", "--gamma", "0"}, "--gamma 0: it must be above 0 and at most 1"},
		{[]string{"--cold-start", "lsth", "--gamma", "2"}, "--gamma 2"},
		{[]string{"--gamma", "0.3"}, "--gamma is for --cold-start lsth; faas-infer has no γ"},
		{[]string{"--longest-path", "onnxruntime,tensorflow"}, `--longest-path "tensorflow": it must be onnxruntime or cuda`},
	} {
		if _, err := parsed(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestSchedulerFlag(t *testing.T) {
	f, err := parsed(t)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := systems.ByName(systems.Default)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.system(); err != nil || got.Settings() != ours.Settings() {
		t.Errorf("by default: %+v, %v", got, err)
	}
	if f, err = parsed(t, "--scheduler", "greedy"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.system(); err != nil || got.Settings().Options != capacity.Greedy() {
		t.Errorf("greedy: %+v, %v", got, err)
	}
}

// With --scheduler printed the provider has the settings of the simulator's system infless, and
// α, β and γ are INFless' (§3.2, 3.4, 3.5).
func TestINFlessFlags(t *testing.T) {
	f, err := parsed(t, "--scheduler", "printed", "--policy", "infless", "--cold-start", "lsth")
	if err != nil {
		t.Fatal(err)
	}
	infless, err := systems.ByName(systems.INFless)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.system(); err != nil || got.Settings() != infless.Settings() {
		t.Errorf("printed: %+v, %v", got, err)
	}
	f, err = parsed(t, "--scheduler", "greedy", "--alpha", "0.5", "--beta", "0.3", "--cold-start", "lsth", "--gamma", "0.7", "--longest-path", "cuda")
	if err != nil {
		t.Fatal(err)
	}
	want := capacity.Greedy()
	want.Beta = 0.3
	if got, err := f.system(); err != nil || got.Settings().Options != want || got.Settings().Alpha != 0.5 {
		t.Errorf("α and β: %+v, %v", got.Settings(), err)
	}
	if cold, err := f.cold(); err != nil || !reflect.DeepEqual(cold, coldstart.NewLSTH(0.7)) {
		t.Errorf("γ: %+v, %v", cold, err)
	}
	if m := f.Models(); m.Longest || !m.LongestOn {
		t.Errorf("the longest path: %v, %v", m.Longest, m.LongestOn)
	}
	if o, err := f.ControlOptions(Base{}); err != nil || o.Longest || !o.LongestOn {
		t.Errorf("the longest path: %+v, %v", o, err)
	}
}
