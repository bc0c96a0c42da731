package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model"
)

// The hostile files are what their names say, and reading them is bounded for who walks through them.
func TestHostileFiles(t *testing.T) {
	nodes, err := manyNodes()
	if err != nil || len(nodes) < 20_000_000 {
		t.Fatalf("%d bytes, %v", len(nodes), err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(file, nodes, 0o644); err != nil {
		t.Fatal(err)
	}
	if names, err := model.ExternalFiles(file); err == nil || !strings.Contains(err.Error(), weightsFile) {
		t.Errorf("without its weights: %q, %v", names, err)
	}
	if err := os.WriteFile(filepath.Join(dir, weightsFile), make([]byte, 4), 0o644); err != nil {
		t.Fatal(err)
	}
	if names, err := model.ExternalFiles(file); err != nil || len(names) != 1 || names[0] != weightsFile {
		t.Errorf("%q, %v", names, err)
	}
	warnings, err := manyWarnings()
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Read(warnings)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(m.Proto().Graph.Initializer); n != 100_000 {
		t.Errorf("%d weights", n)
	}
	for name, nodes := range map[string]string{"endless": endless, "vast": vast} {
		p, err := graphOf(nodes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := proto.Marshal(p); err != nil || !bytes.Contains(b, []byte("hostile")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPackets(t *testing.T) {
	const table = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
   out:    0       0    0    0    0     0          0         0      240       4    0    3    0     0       0          0
`
	if n, err := packetsIn(table); err != nil || n != 7 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := packetsIn("lo: 1 2"); err == nil {
		t.Error("without the interface there is no number")
	}
}

// What a sentence rules out counts as wrong, and is noted.
func TestMust(t *testing.T) {
	var one trial
	one.must(true, "fine")
	one.must(false, "%d packets", 3)
	if one.broken != 1 || len(one.notes) != 1 || !strings.Contains(one.notes[0], "3 packets") {
		t.Errorf("%d %q", one.broken, one.notes)
	}
}

// Right answers in a part of one load count, those of other loads do not.
func TestAnswered(t *testing.T) {
	r := newRecorder(1, "")
	r.sources = []source{{}, {function: &function{want: func(int) Hash { return 7 }}}}
	for i, hash := range []Hash{7, 7, 8, 7} {
		r.hashes[at{1, i}] = hash
	}
	began := time.Unix(1, 0)
	all := []load.Observed{
		{Index: 0, Sent: true, Status: 200}, {Index: 1, At: time.Second, Sent: true, Status: 500}, {Index: 2, At: time.Second, Sent: true, Status: 200},
		{Index: 3, At: time.Second, Sent: true, Status: 200}, {Index: 4, At: 2 * time.Second},
	}
	r.seen = []observed{{first: 0, began: began, all: all[:1]}, {first: 1, began: began, all: all}}
	for from, want := range map[time.Duration]Share{0: {1, 1}, time.Second: {1, 3}, 2 * time.Second: {0, 1}} {
		if got := r.answered(1, from, from+time.Second); got != want {
			t.Errorf("from %v: %+v, want %+v", from, got, want)
		}
	}
}
