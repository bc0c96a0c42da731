package systems

import (
	"reflect"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
)

// Only the cold-start policy differs.
func TestWithCold(t *testing.T) {
	base, err := ByName(Default)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range coldstart.Names() {
		s, err := base.WithCold(name, coldstart.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := coldstart.New(name, coldstart.Options{KeepAlive: baselineKeepAlive})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Cold(); reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s gives %T, want %T", name, got, want)
		}
		if !reflect.DeepEqual(s.Settings(), base.Settings()) || s.Name != base.Name || s.rules.Batching != base.rules.Batching {
			t.Errorf("%s changes more than that", name)
		}
	}
	if s, err := base.WithCold("fixed", coldstart.Options{KeepAlive: time.Minute}); err != nil || s.Cold().Windows(time.Time{}, "f").KeepAlive != time.Minute {
		t.Errorf("options are not used: %v", err)
	}
	if _, err := base.WithCold("lsth", coldstart.Options{Gamma: 2}); err == nil {
		t.Error("a γ of 2 is taken")
	}
	if _, err := base.WithCold("none", coldstart.Options{}); err == nil {
		t.Error("an unknown policy is taken")
	}
}
