package protocol

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	body := []byte(strings.Repeat(`{"predictions":[0.25,0.5]}`, 1000))
	for _, coding := range []string{Gzip, Deflate} {
		for range 2 { // The second time with a compressor that was used before.
			packed, ok := Compress(coding, body)
			if !ok || len(packed) > len(body)/10 {
				t.Fatalf("%s: %d bytes of %d, %v", coding, len(packed), len(body), ok)
			}
			got, err := decompress(" "+strings.ToUpper(coding), packed, int64(len(body)))
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: %d bytes, %v", coding, len(got), err)
			}
			if _, err := decompress(coding, packed, int64(len(body)-1)); !errors.Is(err, errInflated) {
				t.Errorf("%s: %v, want ErrTooLarge", coding, err)
			}
		}
	}
	if got, err := decompress("identity", body, 1); err != nil || !bytes.Equal(got, body) {
		t.Error("identity changes the body")
	}
}

func TestDecodeRefuses(t *testing.T) {
	packed, _ := Compress(Gzip, []byte(strings.Repeat("a", 1000)))
	broken := bytes.Clone(packed)
	broken[len(broken)-5] ^= 1
	for name, c := range map[string]struct {
		coding string
		body   []byte
		why    string
	}{
		"unknown":  {"br", packed, "only gzip and deflate are supported"},
		"two":      {"gzip, gzip", packed, "only gzip and deflate are supported"},
		"not gzip": {"gzip", []byte("{}"), "not gzip, as Content-Encoding says"},
		"not zlib": {"deflate", packed, "not deflate, as Content-Encoding says"},
		"cut":      {"gzip", packed[:len(packed)-9], "not gzip, as Content-Encoding says"},
		"checksum": {"gzip", broken, "not gzip, as Content-Encoding says"},
		"empty":    {"gzip", nil, "not gzip, as Content-Encoding says"},
	} {
		if _, err := decompress(c.coding, c.body, 1<<20); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.why)
		}
	}
}

// TestBombs checks that a refused body takes no more memory than an accepted one.
func TestBombs(t *testing.T) {
	const limit = 1 << 20
	bomb, _ := Compress(Gzip, make([]byte, 64<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decompress(Gzip, bomb, limit)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errInflated) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	// The buffer doubles, so that all its sizes together are four times the limit, and the race detector adds to them.
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*limit {
		t.Errorf("%d bytes that become 64 MiB took %d bytes of memory", len(bomb), took)
	}
}

func TestChoose(t *testing.T) {
	for accept, want := range map[string]string{
		"": "", "identity": "", "br": "", "gzip": Gzip, "GZIP": Gzip, "deflate": Deflate, "gzip, deflate": Gzip,
		"deflate, gzip": Gzip, "gzip;q=0": "", "gzip; q=0.1, deflate; q=0.5": Deflate,
		"*": Gzip, "gzip;q=x": "", "br, zstd, gzip, deflate": Gzip,
	} {
		if got := chooseCoding(accept); got != want {
			t.Errorf("%q: %q, want %q", accept, got, want)
		}
	}
}

func TestEncodeTellsWhatIsNotWorthIt(t *testing.T) {
	random := make([]byte, 4096)
	source := rand.NewChaCha8([32]byte{})
	if _, err := source.Read(random); err != nil {
		t.Fatal(err)
	}
	if _, ok := Compress(Gzip, random); ok {
		t.Error("random bytes are said to become shorter")
	}
	if _, ok := Compress("br", random); ok {
		t.Error("an unknown coding is said to be written")
	}
}
