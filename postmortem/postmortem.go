// Package postmortem says in one sentence why a child process ended, from its exit status
// and its output. It starts, watches and reads nothing; its callers do. Begin reading at
// [Cause].
package postmortem

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxCause is the maximum length of a cause in bytes.
const maxCause = 600

// crashes match the line with which a runtime reports that it ends the process. Much may
// follow it: Go prints all stacks and at last the registers.
var crashes = []*regexp.Regexp{
	regexp.MustCompile(`^(SIG[A-Z]+): (.+)$`),                                // Go, after a signal in any code.
	regexp.MustCompile(`^(fatal error|panic): (.+)$`),                        // Go.
	regexp.MustCompile(`^(Fatal Python error): (.+)$`),                       // CPython with faulthandler.
	regexp.MustCompile(`^(terminate called) after throwing an (.+)$`),        // C++, before SIGABRT.
	regexp.MustCompile(`^(terminate called) (without an active exception)$`), // C++.
}

var (
	// register matches a line of Go's dump of the registers.
	register = regexp.MustCompile(`^[a-z][a-z0-9]{1,5} +0x[0-9a-f]+$`)
	// thrown matches the text of the C++ exception that nobody caught.
	thrown = regexp.MustCompile(`^what\(\): +(.+)$`)
	// memory matches what runtimes say when an allocation fails.
	memory = regexp.MustCompile(`(?i)bad_alloc|out of memory|cannot allocate memory`)
)

// native is what Go says of a signal that C or C++ code raised.
const native = "signal arrived during cgo execution"

// Headline reports whether a line begins a crash report of Go, CPython or C++.
func Headline(line string) bool {
	for _, r := range crashes {
		if r.MatchString(line) {
			return true
		}
	}
	return false
}

// Unknown is the exit code of a process of which none is known.
const Unknown = -1

// Code returns a process's exit code as shells have it: 128 and the signal's number if a signal
// ended it.
func Code(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// crashCode reports whether a process with this exit code may have written a crash report at its
// end. Go exits with 2. A report in the output of others is of an error that they survived.
func crashCode(code int) bool { return code == Unknown || code == 2 || code >= 128 }

// Cause returns the line of a process's output that says why it ended with an exit code, at
// most 600 bytes and the mark of omission: the headline of the last crash report, otherwise the last line that is not
// empty. It is "" if there is no output.
func Cause(code int, output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	last := lines[len(lines)-1]
	if !crashCode(code) {
		return shorten(last)
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if Headline(lines[i]) {
			return shorten(crash(lines, i))
		}
	}
	if register.MatchString(last) {
		return "it crashed; the output has only the end of its crash report"
	}
	return shorten(last)
}

// crash describes the crash report whose headline is lines[at].
func crash(lines []string, at int) string {
	text := lines[at]
	if m := crashes[0].FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%s (%s)", m[1], m[2])
		for _, line := range lines[at:] {
			if strings.HasPrefix(line, native) {
				text += " in native code"
				break
			}
		}
	}
	// C++ says what it threw, and then aborts.
	const before = 6
	for _, line := range lines[max(0, at-before):min(len(lines), at+2)] {
		switch m := thrown.FindStringSubmatch(line); {
		case m != nil:
			text += ": " + m[1]
		case line != lines[at] && strings.HasPrefix(line, "terminate called"):
			text += ": " + line
		}
	}
	if memory.MatchString(text) {
		text = "out of memory: " + text
	}
	return text
}

// shorten keeps the beginning, which says what failed, and the end, which says what to do.
func shorten(text string) string {
	if len(text) <= maxCause {
		return text
	}
	const half = maxCause / 2
	return strings.ToValidUTF8(text[:half], "") + " … " + strings.ToValidUTF8(text[len(text)-half:], "")
}

// Status says how a process ended, as the rest of a sentence about it.
func Status(status syscall.WaitStatus) string {
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "was killed by SIGKILL; the kernel does this when the memory limit is reached"
	case status.Signaled():
		return fmt.Sprintf("was ended by the signal %s (%v)", unix.SignalName(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}

// Explain says why a command failed, from the error of its Wait and from its output. clean
// reports whether the program itself ended with an error: the sentence is then its own last
// line.
func Explain(err error, output string) (sentence string, clean bool) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return join(err.Error(), Cause(Unknown, output)), false
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	cause := Cause(Code(status), output)
	if status.Exited() && cause != "" && !(crashCode(Code(status)) && crashed(output)) {
		return cause, true
	}
	return join(Status(status), cause), false
}

// crashed reports whether the output has a crash report or the end of one.
func crashed(output string) bool {
	last := ""
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if last = line; Headline(line) {
			return true
		}
	}
	return register.MatchString(last)
}

func join(text, cause string) string {
	if cause == "" {
		return text
	}
	return text + ": " + cause
}
