package sandbox

import (
	"slices"
	"testing"
)

func TestFunctionsVariablesMeanNothingOutside(t *testing.T) {
	env := map[string]string{"LD_PRELOAD": "/evil.so", "PATH": "/own", "FAAS_INFER_INSTANCE": "another", "A": "b=c", "EMPTY": ""}
	wrapped := Wrap(env)
	slices.Sort(wrapped)
	want := []string{"FAAS_INFER_FUNCTION_A=b=c", "FAAS_INFER_FUNCTION_EMPTY=", "FAAS_INFER_FUNCTION_FAAS_INFER_INSTANCE=another",
		"FAAS_INFER_FUNCTION_LD_PRELOAD=/evil.so", "FAAS_INFER_FUNCTION_PATH=/own"}
	if !slices.Equal(wrapped, want) {
		t.Errorf("wrapped: %q", wrapped)
	}
	got := unwrap(append([]string{"PATH=/provider's", "HOME=/root", "FAAS_INFER_INSTANCE=this"}, wrapped...))
	slices.Sort(got)
	want = []string{"A=b=c", "EMPTY=", "FAAS_INFER_INSTANCE=this", "HOME=/root", "LD_PRELOAD=/evil.so", "PATH=/own"}
	if !slices.Equal(got, want) {
		t.Errorf("unwrapped: %q", got)
	}
}

func TestEnvironmentOfAProcessThatNobodyWrapped(t *testing.T) {
	plain := []string{"PATH=/bin", "fprocess=cat", "FAAS_INFER_READY_FD=3"}
	if got := unwrap(slices.Clone(plain)); !slices.Equal(got, plain) {
		t.Errorf("%q", got)
	}
}
