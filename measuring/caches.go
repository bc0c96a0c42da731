package measuring

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Caches are the sizes in bytes of a core's own (second-level) cache and of the
// last-level one.
type Caches struct{ Own, Last int64 }

// ReadCaches asks the kernel; where it does not say, they are 1 MiB and 32 MiB.
func ReadCaches() Caches {
	c := Caches{Own: 1 << 20, Last: 32 << 20}
	levels, err := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*")
	if err != nil {
		return c
	}
	for _, dir := range levels {
		level, size := word(dir, "level"), bytesIn(word(dir, "size"))
		switch {
		case size == 0 || word(dir, "type") == "Instruction":
		case level == "2":
			c.Own = size
			c.Last = max(c.Last, size)
		case level == "3":
			c.Last = size
		}
	}
	return c
}

func word(dir, file string) string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// bytesIn reads "2048K"; 0 if it is no size.
func bytesIn(text string) int64 {
	unit := int64(1)
	switch {
	case strings.HasSuffix(text, "K"):
		unit = 1 << 10
	case strings.HasSuffix(text, "M"):
		unit = 1 << 20
	}
	n, err := strconv.ParseInt(strings.TrimRight(text, "KM"), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n * unit
}

// sweeper reads through memory that nothing else uses, and so pushes everything
// else out of the caches that are smaller.
type sweeper struct {
	memory []uint64
	sum    uint64
}

const (
	line   = 64 // bytes in a cache line
	word64 = 8
)

// newSweeper can sweep caches of up to size bytes.
func newSweeper(size int64) *sweeper {
	s := &sweeper{memory: make([]uint64, size/word64)}
	for i := range s.memory { // Pages that were never written are all one.
		s.memory[i] = uint64(i)
	}
	return s
}

// sweep reads size bytes.
func (s *sweeper) sweep(size int64) {
	n := min(int(size/word64), len(s.memory))
	for i := 0; i < n; i += line / word64 {
		s.sum += s.memory[i]
	}
}

// touch brings data, which an operator before would just have written, back.
func (s *sweeper) touch(data []byte) {
	for i := 0; i < len(data); i += line {
		s.sum += uint64(data[i])
	}
}
