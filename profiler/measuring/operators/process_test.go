package operators

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func castagnoli(text string) uint32 {
	return crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
}

// role is the variable that makes the test binary run as a separate process.
const role = "OPERATORS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "append":
		appendForever()
	case "full":
		fillUp()
	}
}

// appendForever appends rows of writer argument 2 to the file argument 1, at most as many
// as argument 3, and prints each appended one.
func appendForever() {
	writer, _ := strconv.Atoi(os.Args[2])
	most, _ := strconv.Atoi(os.Args[3])
	f, err := Open(os.Args[1], func(r Repair) { fmt.Println("repaired", r) })
	for i := 0; err == nil && i < most; i++ {
		if err = f.Append(aRow(writer, i)); err == nil {
			fmt.Println("row", i)
		}
	}
	if err != nil {
		fmt.Println("failed", err)
	}
}

// fillUp appends under a limit of file size, argument 2.
func fillUp() {
	limit, _ := strconv.ParseUint(os.Args[2], 10, 64)
	signal.Ignore(syscall.SIGXFSZ)
	f, err := Open(os.Args[1], nil)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit})
	}
	for i := 0; err == nil; i++ {
		err = f.Append(aRow(2, i))
	}
	fmt.Println(err)
	if err := f.Refresh(); err != nil {
		fmt.Println("then", err)
	}
	fmt.Println(f.Database().Len(), "rows")
}

// process starts the test binary in a role.
func process(t *testing.T, as string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env, c.Stderr = append(os.Environ(), role+"="+as, "GORACE=atexit_sleep_ms=0"), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewScanner(out)
}

// A process that is killed while it appends loses at most the row that it was writing. The
// damage is repaired.
func TestKilledWhileAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.jsonl")
	for run := range 10 {
		c, lines := process(t, "append", path, strconv.Itoa(run), "1000000")
		told := 0
		for told < 20+37*run && lines.Scan() && strings.HasPrefix(lines.Text(), "row ") {
			told++
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() && strings.HasPrefix(lines.Text(), "row ") {
			told++
		}
		_ = c.Wait() // It was killed.
		f, err := Open(path, func(r Repair) {
			if len(r.Damage) > 1 {
				t.Errorf("more than one row was in flight: %v", r)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range told {
			if f.Database().Lookup(engine, machine, aRow(run, i).Operator) == nil {
				t.Fatalf("run %d: row %d of %d is lost", run, i, told)
			}
		}
		if told == 0 || f.Database().Lookup(engine, machine, aRow(run, told+1).Operator) != nil {
			t.Errorf("run %d: %d rows told, and more than one on top", run, told)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Processes that append at once do not tear each other's lines, and lose nothing if the
// file is damaged and repaired meanwhile.
func TestProcessesAppendAtOnce(t *testing.T) {
	const writers, each = 4, 150
	path := filepath.Join(t.TempDir(), "o.jsonl")
	var all sync.WaitGroup
	var lock sync.Mutex
	repaired := 0
	for w := range writers {
		c, lines := process(t, "append", path, strconv.Itoa(w), strconv.Itoa(each))
		all.Go(func() {
			for lines.Scan() {
				text := lines.Text()
				switch {
				case strings.HasPrefix(text, "repaired"):
					lock.Lock()
					repaired++
					lock.Unlock()
				case strings.HasPrefix(text, "failed"):
					t.Errorf("writer %d: %s", w, text)
				case w == 0 && strings.HasSuffix(text, "0"):
					litter(t, path)
				}
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f := open(t, path, func(Repair) { repaired++ })
	if got := f.Database().Len(); got != writers*each {
		t.Errorf("%d rows of %d", got, writers*each)
	}
	if repaired == 0 {
		t.Error("nothing was repaired")
	}
}

// litter writes the remains of a torn write into the file.
func litter(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(`{"crc32c":"01234567","format":1,"row":{"oper`)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// A full disk gives an error, and the earlier rows stay. Here the limit on a file's size
// cuts a write off in the middle, as a full disk does.
func TestDiskIsFull(t *testing.T) {
	for limit := 1500; limit < 2200; limit += 53 {
		path := filepath.Join(t.TempDir(), "o.jsonl")
		add(t, open(t, path, unexpected(t)), aRow(1, 1))
		c, lines := process(t, "full", path, strconv.Itoa(limit))
		var said []string
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		db := load(t, path)
		want := fmt.Sprintf("%d rows", db.Len())
		if len(said) != 2 || !strings.Contains(said[0], "file too large; the rows so far are kept") || !strings.Contains(said[0], path) || said[1] != want {
			t.Fatalf("said %q, want %q", said, want)
		}
		if db.Len() < 3 || db.Lookup(engine, machine, aRow(2, db.Len()-2).Operator) == nil {
			t.Errorf("%d rows are left", db.Len())
		}
		add(t, open(t, path, unexpected(t)), aRow(3, 1))
	}
}
