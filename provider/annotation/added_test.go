package annotation

import (
	"strings"
	"testing"
)

// A key of a paper is read with its check, kept for its room, and checked against the other settings.
// Without the paper it is refused with what to do.
func TestKeysOfPapers(t *testing.T) {
	const key = "com.openfaas.infer.tenths"
	stated := map[string]string{SLOLatency: "100ms", key: "5"}
	_, err := Parse(deployment(stated))
	if err == nil || !strings.Contains(err.Error(), key+` is "5": there is no such key`) || !strings.Contains(err.Error(), "built without papers: use one that has them, or leave the key out") {
		t.Errorf("before: %v", err)
	}
	Register(Key{
		Name: key,
		Set: func(in *Inference, value string) error {
			if len(value) != 1 {
				return &Error{Key: key, Value: value, Why: "it must be a digit", Example: "5"}
			}
			in.Stated = in.Stated.With(key, value)
			return nil
		},
		Agree: func(in *Inference, value string) error {
			if in.MaxBatch == 1 {
				return &Error{Key: key, Value: value, Why: "it needs batches"}
			}
			return nil
		},
	})
	defer delete(added, key)
	if in, err := Parse(deployment(stated)); err != nil || in.Stated.Value(key) != "5" {
		t.Errorf("%+v, %v", in, err)
	}
	for _, c := range []struct{ key, value, want string }{
		{key, "10", "it must be a digit"}, {InferMaxBatch, "1", "it needs batches"}, {"com.openfaas.infer.tenth", "1", "it must be one of com.openfaas.infer.access, "},
		{"com.openfaas.infer.tenth", "1", key + ", "},
	} {
		keys := map[string]string{SLOLatency: "100ms", key: "5"}
		keys[c.key] = c.value
		if _, err := Parse(deployment(keys)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: %v", c.key, c.value, err)
		}
	}
	for _, name := range []string{key, InferWeight, "com.openfaas.other"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was registered", name)
				}
			}()
			Register(Key{Name: name})
		}()
	}
}

func TestStatedValues(t *testing.T) {
	var s Stated
	s = s.With("b", "2").With("a", "1=1").With("b", "3").With("c", "x").With("c", "")
	if s != Stated("").With("a", "1=1").With("b", "3") || s.Value("a") != "1=1" || s.Value("b") != "3" || s.Value("c") != "" || s.Value("") != "" {
		t.Errorf("%q", s)
	}
}
