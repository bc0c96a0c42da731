package python

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// shared is a file in memory that both processes map. It can grow and never
// shrinks, so that no fault of the other process takes away what is mapped here.
type shared struct {
	file *os.File
	data []byte
}

// leastShared is its size at first, in bytes; align is that of tensors in it.
const (
	leastShared = 1 << 20
	align       = 64
)

func newShared(name string) (*shared, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	s := &shared{file: os.NewFile(uintptr(fd), name)}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory: %w", err), s.close())
	}
	if err := s.grow(leastShared); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// grow makes it at least so large.
func (s *shared) grow(size int64) error {
	if size <= int64(len(s.data)) {
		return nil
	}
	size = max(size, 2*int64(len(s.data)))
	if err := s.file.Truncate(size); err != nil {
		return fmt.Errorf("%d MiB of shared memory: %w", size>>20, err)
	}
	return s.remap(size)
}

// reach maps what the other process has made larger.
func (s *shared) reach(size int64) error {
	if size <= int64(len(s.data)) {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return fmt.Errorf("the answer is said to have %d bytes, and there are %d", size, info.Size())
	}
	return s.remap(info.Size())
}

func (s *shared) remap(size int64) error {
	data, err := unix.Mmap(int(s.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d MiB of shared memory: %w", size>>20, err)
	}
	old := s.data
	s.data = data
	if old == nil {
		return nil
	}
	return unix.Munmap(old)
}

func (s *shared) close() error {
	var err error
	if s.data != nil {
		err = unix.Munmap(s.data)
		s.data = nil
	}
	return errors.Join(err, s.file.Close())
}

// put copies tensors in and tells where they are.
func (s *shared) put(tensors []tensor.Tensor) (places []placed, size int64, err error) {
	for _, t := range tensors {
		places = append(places, placed{Info: tensor.Info{Name: t.Name, Type: t.Type, Shape: t.Shape}, At: size})
		size += (int64(len(t.Data)) + align - 1) / align * align
	}
	if err := s.grow(size); err != nil {
		return nil, 0, err
	}
	for i, t := range tensors {
		copy(s.data[places[i].At:], t.Data)
	}
	return places, size, nil
}

// take copies a tensor out.
func (s *shared) take(p placed) (tensor.Tensor, error) {
	elements, err := tensor.Elements(p.Shape)
	if err != nil || p.Type.Size() == 0 || p.At < 0 {
		return tensor.Tensor{}, fmt.Errorf("output %q: %s %v at %d", p.Name, p.Type, p.Shape, p.At)
	}
	end := p.At + elements*int64(p.Type.Size())
	if err := s.reach(end); err != nil {
		return tensor.Tensor{}, fmt.Errorf("output %q: %w", p.Name, err)
	}
	return tensor.Tensor{Name: p.Name, Type: p.Type, Shape: p.Shape, Data: bytes.Clone(s.data[p.At:end])}, nil
}

// resident is what a process holds in bytes, 0 if it is gone.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// processorTime is what a process's threads have used, 0 if it is gone.
func processorTime(pid int) time.Duration {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	if err != nil {
		return 0
	}
	var total int64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // A thread that has just ended.
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		n, err := strconv.ParseInt(string(first), 10, 64)
		if err == nil {
			total += n
		}
	}
	return time.Duration(total)
}
