package sandbox

import (
	"os"
	"strings"
)

// EnvFunction prefixes the names of a function's variables in the environment of its
// main process, so they have no effect there. That process has more rights than the
// function: a function's LD_PRELOAD would run the function's code with these rights.
const EnvFunction = "FAAS_INFER_FUNCTION_"

// ownPrefix begins the names of the variables that the provider sets.
const ownPrefix = "FAAS_INFER_"

// Wrap returns a function's variables, with the prefix, for the environment of its main
// process, as NAME=value.
func Wrap(env map[string]string) []string {
	wrapped := make([]string, 0, len(env))
	for name, value := range env {
		wrapped = append(wrapped, EnvFunction+name+"="+value)
	}
	return wrapped
}

// FunctionEnvironment returns the function's environment from that of this process, the
// function's main process, as NAME=value with every name once. It contains the wrapped
// variables and all others. A wrapped variable replaces another of the same name, unless
// the provider sets that one.
func FunctionEnvironment() []string { return unwrap(os.Environ()) }

func unwrap(environ []string) []string {
	var others, wrapped, own []string
	for _, entry := range environ {
		if inner, ok := strings.CutPrefix(entry, EnvFunction); ok {
			wrapped = append(wrapped, inner)
		} else if strings.HasPrefix(entry, ownPrefix) {
			own = append(own, entry)
		} else {
			others = append(others, entry)
		}
	}
	last := map[string]int{}
	all := append(append(others, wrapped...), own...)
	for i, entry := range all {
		last[nameOf(entry)] = i
	}
	kept := all[:0]
	for i, entry := range all {
		if last[nameOf(entry)] == i {
			kept = append(kept, entry)
		}
	}
	return kept
}

func nameOf(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}
