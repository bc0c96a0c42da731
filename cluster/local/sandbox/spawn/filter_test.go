package spawn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	profiles "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write filter_amd64.go and filter_arm64.go anew")

// target is an architecture that has a filter.
type target struct {
	// name is Go's name, machine the kernel's number of the architecture, calls the
	// numbers of its system calls by the kernel's names.
	name    string
	machine uint32
	calls   map[string]int
}

// targets reads the numbers from the package unix, which has them as constants only.
func targets(t *testing.T) []target {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := []target{{name: "amd64", machine: unix.AUDIT_ARCH_X86_64}, {name: "arm64", machine: unix.AUDIT_ARCH_AARCH64}}
	for i := range all {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+all[i].name+".go"))
		if err != nil {
			t.Fatal(err)
		}
		all[i].calls = map[string]int{}
		for _, match := range constant.FindAllStringSubmatch(string(text), -1) {
			all[i].calls[strings.ToLower(match[1])], _ = strconv.Atoi(match[2])
		}
		if len(all[i].calls) < 300 {
			t.Fatalf("%d calls of %s", len(all[i].calls), all[i].name)
		}
	}
	return all
}

var constant = regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)$`)

// The filters are compiled here and not at run time, because the tables of the kernel's
// calls would take every instance a millisecond at its start.
func TestFiltersAreTheProfiles(t *testing.T) {
	for _, to := range targets(t) {
		file := "filter_" + to.name + ".go"
		want := source(t, to)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the profile says (%v); if the change is meant, run the test with -update", file, err)
		}
	}
}

// The programs do what the profile says, whatever the assembler made of it.
func TestFiltersDecideAsTheProfile(t *testing.T) {
	for _, to := range targets(t) {
		rules := rulesFor(t, to)
		vm, err := bpf.NewVM(assemble(t, to))
		if err != nil {
			t.Fatal(err)
		}
		// Values at which an argument's conditions may change, and some with high bits.
		values := []uint64{0, 1, 7, 8, 9, 1 << 32, 1<<32 | 8, 0xffffffff, 0x20000, 0x20008, 0x20001, uint64(unix.SIGCHLD), ^uint64(0)}
		for domain := range uint64(64) {
			values = append(values, domain)
		}
		for bit := range 64 {
			values = append(values, 1<<bit)
		}
		last := newest(rules)
		for number := -1; number < 1024; number++ {
			for _, value := range values {
				want := decide(rules[number], value)
				if number > last || number < 0 {
					want = refusal(unix.ENOSYS)
				}
				if got := run(t, vm, to.machine, uint32(number), value); got != want {
					t.Fatalf("%s: call %d with %#x: %#x, want %#x", to.name, number, value, got, want)
				}
			}
		}
		for _, machine := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
			if got := run(t, vm, machine, 0, 0); got != refusal(unix.ENOSYS) {
				t.Errorf("%s: a call of the architecture %#x: %#x", to.name, machine, got)
			}
		}
		if got := run(t, vm, to.machine, 1<<30, 0); got != refusal(unix.ENOSYS) {
			t.Errorf("%s: a call of x32: %#x", to.name, got)
		}
	}
}

// These are worth to be said by name, whatever later profiles allow.
func TestFiltersForbid(t *testing.T) {
	for _, to := range targets(t) {
		rules := rulesFor(t, to)
		for _, name := range []string{
			"add_key", "bpf", "chroot", "fsmount", "fsopen", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp",
			"kexec_load", "keyctl", "mount", "move_mount", "open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "reboot",
			"request_key", "setns", "swapon", "umount2", "unshare", "userfaultfd",
		} {
			if got := decide(rules[to.calls[name]], 0); got != refusal(unix.EPERM) || to.calls[name] == 0 {
				t.Errorf("%s: %s gets %#x", to.name, name, got)
			}
		}
		for name, argument := range map[string]uint64{"clone": unix.CLONE_NEWUSER, "socket": unix.AF_VSOCK, "personality": 0x40000} {
			if got := decide(rules[to.calls[name]], argument); got != refusal(unix.EPERM) {
				t.Errorf("%s: %s gets %#x", to.name, name, got)
			}
		}
		if got := decide(rules[to.calls["clone3"]], 0); got != refusal(unix.ENOSYS) {
			t.Errorf("%s: clone3 gets %#x", to.name, got)
		}
	}
}

func refusal(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// rule says what happens to one system call. Without conditions it is always action.
// Otherwise it is action if the first argument meets one of them, and EPERM if not.
type rule struct {
	name       string
	action     uint32
	conditions []specs.LinuxSeccompArg
}

// rulesFor returns the profile's rules for a process without capabilities, by the calls'
// numbers. It fails at what the assembler below does not know.
func rulesFor(t *testing.T, to target) map[int]rule {
	t.Helper()
	profile := profiles.DefaultProfile()
	if profile.DefaultAction != specs.ActErrno || *profile.DefaultErrnoRet != uint(unix.EPERM) {
		t.Fatalf("the profile's default is %s", profile.DefaultAction)
	}
	rules := map[int]rule{}
	for _, entry := range profile.Syscalls {
		if !applies(t, entry, to.name) {
			continue
		}
		action := uint32(unix.SECCOMP_RET_ALLOW)
		if entry.Action == specs.ActErrno {
			action = refusal(unix.Errno(*entry.ErrnoRet))
		} else if entry.Action != specs.ActAllow {
			t.Fatalf("%v: unknown action %s", entry.Names, entry.Action)
		}
		if len(entry.Args) > 1 || len(entry.Args) == 1 && (entry.Args[0].Index != 0 || action != unix.SECCOMP_RET_ALLOW) {
			t.Fatalf("%v: unknown conditions %v", entry.Names, entry.Args)
		}
		for _, name := range entry.Names {
			number, exists := to.calls[name]
			if !exists { // A call of other architectures.
				continue
			}
			r, again := rules[number]
			if again && (len(r.conditions) == 0 || len(entry.Args) == 0) {
				t.Fatalf("%s has two rules", name)
			}
			rules[number] = rule{name, action, append(r.conditions, entry.Args...)}
		}
	}
	return rules
}

// applies reports whether an entry is for an architecture, a process without capabilities and
// a kernel that has seccomp(2)'s test for filters.
func applies(t *testing.T, entry *profiles.Syscall, name string) bool {
	t.Helper()
	for _, f := range []*profiles.Filter{entry.Includes, entry.Excludes} {
		if f != nil && f.MinKernel != nil && (f == entry.Excludes || f.MinKernel.Kernel > 4 || f.MinKernel.Major > 8) {
			t.Fatalf("%v depend on the kernel %s", entry.Names, f.MinKernel)
		}
	}
	if f := entry.Includes; f != nil && (len(f.Caps) > 0 || len(f.Arches) > 0 && !slices.Contains(f.Arches, name)) {
		return false
	}
	return entry.Excludes == nil || !slices.Contains(entry.Excludes.Arches, name)
}

// newest returns the highest number that the profile names. It knows nothing of calls above.
func newest(rules map[int]rule) int { return slices.Max(slices.Collect(maps.Keys(rules))) }

// decide returns the profile's answer to a call with this first argument.
func decide(r rule, argument uint64) uint32 {
	if r.name == "" {
		return refusal(unix.EPERM)
	}
	if len(r.conditions) == 0 {
		return r.action
	}
	for _, c := range r.conditions {
		met := map[specs.LinuxSeccompOperator]bool{
			specs.OpEqualTo: argument == c.Value, specs.OpLessThan: argument < c.Value, specs.OpMaskedEqual: argument&c.Value == c.ValueTwo,
		}
		if met[c.Op] {
			return r.action
		}
	}
	return refusal(unix.EPERM)
}

// Offsets in the kernel's struct seccomp_data.
const (
	numberOffset   = 0
	machineOffset  = 4
	argumentOffset = 16
)

// assemble compiles the rules of an architecture.
func assemble(t *testing.T, to target) []bpf.Instruction {
	t.Helper()
	rules := rulesFor(t, to)
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: machineOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: to.machine, SkipTrue: 1},
		bpf.RetConstant{Val: refusal(unix.ENOSYS)},
		bpf.LoadAbsolute{Off: numberOffset, Size: 4},
		// Above are calls that the profile does not know, and those of x32.
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(newest(rules)), SkipFalse: 1},
		bpf.RetConstant{Val: refusal(unix.ENOSYS)},
	}
	return append(program, search(t, segments(t, rules))...)
}

// segment is a range of system calls' numbers with the same rule, up to the next segment's.
type segment struct {
	first int
	code  []bpf.Instruction
}

// segments divides the numbers up to the newest.
func segments(t *testing.T, rules map[int]rule) (all []segment) {
	t.Helper()
	for number := range newest(rules) + 1 {
		r, known := rules[number]
		code := []bpf.Instruction{bpf.RetConstant{Val: refusal(unix.EPERM)}}
		switch {
		case known && len(r.conditions) == 0:
			code = []bpf.Instruction{bpf.RetConstant{Val: r.action}}
		case known:
			code = assembleConditions(t, r)
		}
		if len(all) == 0 || !slices.Equal(all[len(all)-1].code, code) {
			all = append(all, segment{number, code})
		}
	}
	return all
}

// search returns a binary search for the segment of the number that is loaded. The kernel
// tries and compiles the program whenever a process gets it, so it must be small.
func search(t *testing.T, among []segment) []bpf.Instruction {
	t.Helper()
	if len(among) == 1 {
		return among[0].code
	}
	middle := len(among) / 2
	below, above := search(t, among[:middle]), search(t, among[middle:])
	const longestJump = 255
	if len(below) > longestJump {
		t.Fatalf("a jump over %d instructions", len(below))
	}
	jump := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(among[middle].first), SkipTrue: uint8(len(below))}
	return append(append([]bpf.Instruction{jump}, below...), above...)
}

// assembleConditions compiles a rule with conditions.
func assembleConditions(t *testing.T, r rule) []bpf.Instruction {
	t.Helper()
	tests := map[specs.LinuxSeccompOperator]bpf.JumpTest{
		specs.OpEqualTo: bpf.JumpEqual, specs.OpLessThan: bpf.JumpLessThan, specs.OpMaskedEqual: bpf.JumpBitsNotSet,
	}
	masked := r.conditions[0].Op == specs.OpMaskedEqual
	var code []bpf.Instruction
	// The conditions' values have 32 bits.
	if !masked {
		code = append(code, bpf.LoadAbsolute{Off: argumentOffset + 4, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: uint8(len(r.conditions) + 1)})
	}
	code = append(code, bpf.LoadAbsolute{Off: argumentOffset, Size: 4})
	for i, c := range r.conditions {
		test, known := tests[c.Op]
		if !known || c.Value>>32 != 0 || c.ValueTwo != 0 || masked != (c.Op == specs.OpMaskedEqual) {
			t.Fatalf("%s: unknown condition %+v", r.name, c)
		}
		code = append(code, bpf.JumpIf{Cond: test, Val: uint32(c.Value), SkipTrue: uint8(len(r.conditions) - i)})
	}
	return append(code, bpf.RetConstant{Val: refusal(unix.EPERM)}, bpf.RetConstant{Val: r.action})
}

// run returns a program's answer to a call with this first argument.
func run(t *testing.T, vm *bpf.VM, machine, number uint32, argument uint64) uint32 {
	t.Helper()
	// The machine reads words in network order, the kernel in the processor's.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[numberOffset:], number)
	binary.BigEndian.PutUint32(data[machineOffset:], machine)
	binary.BigEndian.PutUint32(data[argumentOffset:], uint32(argument))
	binary.BigEndian.PutUint32(data[argumentOffset+4:], uint32(argument>>32))
	answer, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(answer)
}

// source returns the Go file with an architecture's program.
func source(t *testing.T, to target) []byte {
	t.Helper()
	raw, err := bpf.Assemble(assemble(t, to))
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for name, number := range to.calls {
		names[number] = name
	}
	var out strings.Builder
	fmt.Fprint(&out, `// Code generated by "go test -run TestFiltersAreTheProfiles ./cluster/local/sandbox/spawn -update". DO NOT EDIT.

package spawn

import "golang.org/x/sys/unix"

// filter is the default profile for a process without capabilities.
var filter = []unix.SockFilter{
`)
	const load, jumpIfNotBelow, ret = 0x20, 0x35, 0x06
	var loaded uint32
	for _, instruction := range raw {
		fmt.Fprintf(&out, "{Code: %#x, Jt: %d, Jf: %d, K: %#x},", instruction.Op, instruction.Jt, instruction.Jf, instruction.K)
		switch {
		case instruction.Op == load:
			loaded = instruction.K
		case instruction.Op == ret:
			loaded = numberOffset // A condition's code ends.
		case instruction.Op == jumpIfNotBelow && loaded == numberOffset:
			fmt.Fprintf(&out, " // from %s on", cmp.Or(names[int(instruction.K)], "an unused number"))
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintln(&out, "}")
	formatted, err := format.Source([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return formatted
}
