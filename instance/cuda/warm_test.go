package cuda

import (
	"testing"

	"github.com/faas-infer/faas-infer/model/zoo"
)

// A process warms up with models of the zoo, and can then open another.
func TestWarm(t *testing.T) {
	onModel(t)
	if err := warm(Options{onHost: true}, []string{"mnist", "bert-small"}); err != nil {
		t.Fatal(err)
	}
	if err := Healthy(); err != nil {
		t.Error(err)
	}
	file, _ := zooFile(t, "mnist")
	e, err := Open(Options{Model: file, MaxBatch: 1, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range warming {
		if _, ok := zoo.Find(name); !ok {
			t.Errorf("the zoo has no %s", name)
		}
	}
}
