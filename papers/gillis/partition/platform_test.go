package partition

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func platformNamed(name string) *Platform {
	p, ok := Named(name)
	if !ok {
		panic("no platform " + name)
	}
	return p
}

func TestBuiltinPlatforms(t *testing.T) {
	if got := strings.Join(Builtin(), " "); got != "google knix lambda lambda-release" {
		t.Errorf("built-in platforms: %s", got)
	}
	for _, c := range []struct {
		platform, kind string
		x, want        float64
	}{
		{"lambda", "conv", 1000000, 66 + 0.703038},
		{"lambda", "pool", 1, 0}, // The line is below 0 there.
		{"knix", "gemm", 1000, 1.1 + 2.157},
		{"google", "relu", 1000, 2.29219 - 0.0696},
		{"lambda", "lstm", 3, 3 * 955.15847},
		{"lambda-release", "add", 1000, 2.60959 + 0.09502701},
		{"google", "bn", 1000, 1.42082 + 0.27576228},
	} {
		got, err := platformNamed(c.platform).ComputeMs(c.kind, c.x)
		if err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %s of %g: %g, want %g (%v)", c.platform, c.kind, c.x, got, c.want, err)
		}
	}
	if _, err := platformNamed("knix").ComputeMs("softmax", 1); err == nil || !strings.Contains(err.Error(), "softmax") {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, ok := Named("azure"); ok {
		t.Error("azure is built in")
	}
	// KNIX: (in + out)/64·2 + 12 ms; GCF: 0.1204·in + 0.135·out + 40 ms; in 1024 elements.
	in, out := int64(100*4096), int64(300*4096)
	for name, want := range map[string]float64{"knix": 400.0/64*2 + 12, "google": 12.04 + 40.5 + 40} {
		trip := platformNamed(name).Transfer.RoundTrip(in, out)
		if m := trip.Moments(); math.Abs(m.Mean-want) > 1e-9 || m.Variance != 0 {
			t.Errorf("%s: %+v, want %g ms", name, m, want)
		}
	}
	if p := platformNamed("lambda"); p.Memory() != 1400<<20 || p.Billing.billed(100) != 100 || p.Billing.billed(100.1) != 101 {
		t.Errorf("%+v", p)
	}
	if p := platformNamed("google"); p.Billing.billed(100.1) != 200 || p.Billing.billed(0) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestPlatformFiles(t *testing.T) {
	text, err := json.Marshal(platformNamed("lambda"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlatform(bytes.NewReader(text)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"memory_mib":1400`, `"memory_mib":0`, "memory_mib: 0: must be more than 0"},
		{`"memory_mib"`, `"memory"`, "memory"},
		{`"granularity_ms":1`, `"granularity_ms":-1`, "billing.granularity_ms: -1: must be 0 or more"},
		{`"unit_bytes":4096`, `"unit_bytes":0`, "codec.unit_bytes"},
		{`"unit_bytes":4,`, `"unit_bytes":0,`, "transfer.unit_bytes"},
		{`"gemm"`, `"dense"`, `compute: "dense": must be one of`},
		{`"scale_ms":0.9965843281779094`, `"scale_ms":-1`, "transfer.send.scale_ms"},
		{`"name"`, `"name":"x"}{"name"`, "more after"},
		{`{"name"`, `[{"name"`, "platform"},
	} {
		if !strings.Contains(string(text), c.old) {
			t.Fatalf("the file has no %s", c.old)
		}
		_, err := ReadPlatform(strings.NewReader(strings.Replace(string(text), c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
	}
	if _, err := ReadPlatform(strings.NewReader(string(text) + "{}")); err == nil {
		t.Error("two objects are read")
	}
}

func FuzzReadPlatform(f *testing.F) {
	for _, name := range Builtin() {
		text, err := json.Marshal(platformNamed(name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadPlatform(bytes.NewReader(text))
		if err != nil {
			return
		}
		l := p.RoundTime([]Part{{Compute: 1, In: 1 << 20, Out: 5}, {Compute: 2, In: 7}}, 0)
		if m := l.Moments(); m.Mean < 0 || m.Variance < 0 {
			t.Errorf("%+v: %+v", p, m)
		}
	})
}

// The kinds are those that the built-in platforms have.
func TestKinds(t *testing.T) {
	for _, name := range Builtin() {
		p := platformNamed(name)
		for _, kind := range kinds {
			if _, ok := p.Compute[kind]; !ok {
				t.Errorf("%s has no %s", name, kind)
			}
		}
		if len(p.Compute) != len(kinds) || !slices.IsSortedFunc(Builtin(), strings.Compare) {
			t.Errorf("%s: %v", name, p.Compute)
		}
	}
}
