package measuring

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caches are the sizes in bytes of a core's own (second-level) cache and of the
// last-level cache.
type Caches struct{ Own, Last int64 }

// sample is the size of a sweep that the last-level cache is likely to hold.
func (c Caches) sample() int64 { return min(c.Last/4, 24<<20) }

// ReadCaches reads the sizes from the kernel. The defaults are 1 MiB and 32 MiB.
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

// bytesIn reads a size such as "2048K", in bytes; 0 for any other text.
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

// sweeper reads through memory of its own. This evicts everything else from smaller
// caches.
type sweeper struct {
	memory []uint64
	bytes  []byte
	// sum and others keep the compiler from removing the reads.
	sum, others uint64
}

const (
	line   = 64 // bytes in a cache line
	word64 = 8
)

// newSweeper makes a sweeper for caches of up to size bytes. Its memory is in pages of
// 4 KiB, like the weights of a mapped model. With large pages by chance, a sweep would
// differ by half between two processes.
func newSweeper(size int64) (*sweeper, error) {
	bytes, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d MiB to sweep the caches: %w", size>>20, err)
	}
	// A kernel without large pages returns an error. That does not matter.
	_ = unix.Madvise(bytes, unix.MADV_NOHUGEPAGE)
	s := &sweeper{bytes: bytes, memory: unsafe.Slice((*uint64)(unsafe.Pointer(&bytes[0])), len(bytes)/word64)}
	for i := range s.memory { // All unwritten pages are one page.
		s.memory[i] = uint64(i)
	}
	return s, nil
}

func (s *sweeper) close() error { return unix.Munmap(s.bytes) }

// sweep reads size bytes.
func (s *sweeper) sweep(size int64) {
	s.sum += read(s.memory[:min(int(size/word64), len(s.memory))])
}

// sweepOn reads size bytes on each of several threads at once, other bytes on each. This
// empties the own caches of their cores. It also keeps the cores awake for the engine,
// as between two operators of a model.
func (s *sweeper) sweepOn(threads int, size int64) {
	n := min(int(size/word64), len(s.memory)/threads)
	var done sync.WaitGroup
	for t := 1; t < threads; t++ {
		done.Go(func() { atomic.AddUint64(&s.others, read(s.memory[t*n:(t+1)*n])) })
	}
	s.sum += read(s.memory[:n])
	done.Wait()
}

func read(memory []uint64) (sum uint64) {
	for i := 0; i < len(memory); i += line / word64 {
		sum += memory[i]
	}
	return sum
}

// touch reads data into the cache, as if the operator before had just written it.
func (s *sweeper) touch(data []byte) {
	for i := 0; i < len(data); i += line {
		s.sum += uint64(data[i])
	}
}
