package local

import (
	"errors"
	"fmt"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// Instances that map the same file count it once, also for a backend that takes them over, and until the
// last of them is gone. The memory limit of each has room for all of the file: its pages are charged to
// the first that reads them.
func TestMappedFilesCountOnce(t *testing.T) {
	dir := t.TempDir()
	b, err := New(t.Context(), options(dir, false))
	if err != nil {
		t.Fatal(err)
	}
	free := func(b *Backend) int64 {
		nodes, err := b.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0].Free.Memory >> 20
	}
	twin := func(i int) cluster.InstanceSpec {
		s := spec(fmt.Sprint("i", i), "never ready")
		s.Config.CPU, s.Config.Memory, s.Config.Mapped = 100, 256<<20, cluster.Mapping{File: "resnet-50", Bytes: 98 << 20}
		return s
	}
	for i := range 5 { // (1024 − 98)/158, and four without.
		begin(t, b, twin(i))
	}
	if _, err := b.Start(t.Context(), twin(5)); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("a sixth: %v", err)
	}
	if got := free(b); got != 1024-98-5*158 {
		t.Errorf("%d MiB are free", got)
	}
	if whole, _ := b.entries["i0"].limits(); whole.Memory != 256<<20 {
		t.Errorf("the limit of one is %d MiB", whole.Memory>>20)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, options(dir, false))
	if got := free(b); got != 1024-98-5*158 {
		t.Errorf("%d MiB are free for the next backend", got)
	}
	for i := range 5 {
		stopNow(t, b, cluster.InstanceID(fmt.Sprint("i", i)))
		want := int64(1024 - 98 - (4-i)*158)
		if i == 4 {
			want = 1024
		}
		if got := free(b); got != want {
			t.Errorf("%d MiB are free after %d stops, want %d", got, i+1, want)
		}
	}
}
