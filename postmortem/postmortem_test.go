package postmortem

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// dump is what a Go program prints after a signal in C code, shortened.
const dump = `warning: something
SIGSEGV: segmentation violation
PC=0x7f06 m=0 sigcode=1 addr=0x0
signal arrived during cgo execution

goroutine 1 gp=0xc0 m=0 mp=0x31 [syscall, locked to thread]:
runtime.cgocall(0x1, 0x2)

rax    0x0
cs     0x33
gs     0x0
`

func TestCause(t *testing.T) {
	for output, want := range map[string]string{
		"":                                   "",
		"one":                                "one",
		"one\ntwo\n":                         "two",
		"warning: x\nfaas-infer: bad  \n\n ": "faas-infer: bad",
		dump:                                 "SIGSEGV (segmentation violation) in native code",
		dump[strings.Index(dump, "rax"):]:    "it crashed; the output has only the end of its crash report",
		"panic: runtime error: index out of range [3]\n\ngoroutine 1:\nmain.main()\n":                                                                                                 "panic: runtime error: index out of range [3]",
		"fatal error: runtime: cannot allocate memory\n\nruntime stack:\n":                                                                                                            "out of memory: fatal error: runtime: cannot allocate memory",
		"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nSIGABRT: abort\nPC=0x7f\nsignal arrived during cgo execution\n\nrip    0x7f06\n": "out of memory: SIGABRT (abort) in native code: terminate called after throwing an instance of 'std::bad_alloc': std::bad_alloc",
		"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n  File \"x.py\"\n":                                                                                            "Fatal Python error: Segmentation fault",
		strings.Repeat("x", 400) + strings.Repeat("y", 400):                                                                                                                           strings.Repeat("x", 300) + " … " + strings.Repeat("y", 300),
	} {
		if got := Cause(2, output); got != want {
			t.Errorf("%.60q: %q, want %q", output, got, want)
		}
	}
	survived := "panic: a request\ngoroutine 1:\n\ngood bye\n"
	for code, want := range map[int]string{1: "good bye", 0: "good bye", 2: "panic: a request", 139: "panic: a request", Unknown: "panic: a request"} {
		if got := Cause(code, survived); got != want {
			t.Errorf("exit code %d: %q, want %q", code, got, want)
		}
	}
}

// The sentence names the signal of a process that a signal ended, and what the program said
// of an error.
func TestExplain(t *testing.T) {
	for script, want := range map[string]struct {
		output, sentence string
		clean            bool
	}{
		"exit 1": {"faas-infer: no such file\n", "faas-infer: no such file", true},
		"exit 1 # after a panic that it survived": {"panic: x\nno such file\n", "no such file", true},
		"exit 3":        {"", "exited with status 3", false},
		"exit 2":        {dump, "exited with status 2: SIGSEGV (segmentation violation) in native code", false},
		"kill -KILL $$": {"", "was killed by SIGKILL; the kernel does this when the memory limit is reached", false},
		"kill -SEGV $$": {"loading\n", "was ended by the signal SIGSEGV (segmentation fault): loading", false},
	} {
		sentence, clean := Explain(exec.Command("/bin/sh", "-c", script).Run(), want.output)
		if sentence != want.sentence || clean != want.clean {
			t.Errorf("%s: %q, %v", script, sentence, clean)
		}
	}
	if sentence, clean := Explain(errors.New("no such program"), ""); sentence != "no such program" || clean {
		t.Errorf("%q, %v", sentence, clean)
	}
}
