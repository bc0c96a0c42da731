package dividing

import (
	"errors"
	"testing"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// A model cannot be divided for reasons of its own. Reasons that may pass are tried again.
func TestReadBlocks(t *testing.T) {
	for text, undivided := range map[string]bool{
		`{"model": {"blocks": [{}]}, "undivided": "its weights are packed"}`:                true,
		`{"model": {"blocks": [{}]}}`:                                                       true,
		`{"model": {"blocks": [{}]}, "undivided": "it is being prepared", "passing": true}`: false,
		`{"model": `: false,
	} {
		m, err := ReadBlocks([]byte(text))
		if err == nil || m != nil || errors.As(err, new(*shadow.UndividedError)) != undivided {
			t.Errorf("%s: %v, %v", text, m, err)
		}
	}
	if m, err := ReadBlocks([]byte(`{"model": {"blocks": [{}, {}]}}`)); err != nil || len(m.Blocks) != 2 {
		t.Errorf("%v, %v", m, err)
	}
}
