package partitioning

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

func TestMain(m *testing.M) {
	// Half of the calls are enough for a fit, and those of a busy machine are half.
	transferred, calls, disturbed = []int64{4 << 10, 1 << 20, 4 << 20}, 40, 1
	os.Exit(m.Run())
}

// The round trips that are fitted are those that are measured, and a larger tensor takes
// longer. Disturbed calls are few or do not count.
func TestTransfer(t *testing.T) {
	transfer, samples, calm, err := Transfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(samples); n > calls*len(transferred) || calm && n < calls/2*len(transferred) {
		t.Fatalf("%d samples", n)
	}
	small, large := transfer.RoundTrip(4<<10, 4<<10).Moments().Mean, transfer.RoundTrip(4<<20, 4<<20).Moments().Mean
	if small <= 0 || large <= small {
		t.Errorf("4 KiB take %v ms, 4 MiB %v", small, large)
	}
	if _, samples, err := Idle(t.Context()); err != nil || len(samples) != calls*len(transferred) {
		t.Errorf("%d samples without computation, %v", len(samples), err)
	}
}

// What was measured is kept, and measured again for another machine. TestGuide follows the guide's
// commands, which measure this one.
func TestPlatformIsKept(t *testing.T) {
	database := filepath.Join(t.TempDir(), "state", "operators.jsonl")
	p, err := partition.ReadPlatform(strings.NewReader(fmt.Sprintf(`{"name": %q, "source": %q, "memory_mib": 1000, "max_parts": 2,
		"crowding": 1.5, "codec": {"unit_bytes": 4}, "transfer": {"unit_bytes": 4, "send": {"loc_ms": 2}, "return": {"loc_ms": 3}}}`, Local, source())))
	if err != nil {
		t.Fatal(err)
	}
	path := database + ".platform.json"
	if err := keep(path, p); err != nil {
		t.Fatal(err)
	}
	again, err := Platform(t.Context(), database)
	if err != nil || again.Transfer != p.Transfer || again.Codec != p.Codec {
		t.Errorf("%+v became %+v, %v", p, again, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "measured on", "measured elsewhere than on", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if kept(path) != nil {
		t.Error("another machine's is taken")
	}
}
