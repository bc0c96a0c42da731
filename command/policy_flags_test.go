package command

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

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
		{[]string{"--scheduler", "random"}, `--scheduler "random": it is joint or greedy`},
		{[]string{"--policy", "best"}, `"best"`},
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
