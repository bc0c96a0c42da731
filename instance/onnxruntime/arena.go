package onnxruntime

import (
	"fmt"
	"sync"

	ort "github.com/yalue/onnxruntime_go"
)

// arena is the process's allocator with a bound, shared by its sessions.
var arena struct {
	sync.Mutex
	limited bool
	limit   int64
}

// limitMemory bounds the sessions that are opened from now on. There is one
// bound for the process; the first stays.
func limitMemory(limit int64) error {
	arena.Lock()
	defer arena.Unlock()
	if limit == 0 || arena.limited {
		if limit != 0 && limit != arena.limit {
			return fmt.Errorf("the process's engines are already bound to %d bytes", arena.limit)
		}
		return nil
	}
	info, err := ort.GetMemoryInfo()
	if err != nil {
		return err
	}
	// Growing by what is asked for, not to the next power of two: the bound is
	// the function's memory limit, of which nothing is to spare.
	cfg, err := ort.NewArenaCfg(int(limit), 1, -1, -1)
	if err != nil {
		return plain(err)
	}
	defer cfg.Destroy()
	if err := ort.CreateAndRegisterAllocator(info, cfg); err != nil {
		return plain(err)
	}
	arena.limited, arena.limit = true, limit
	return nil
}

// memoryLimited tells whether sessions are to use the bounded allocator.
func memoryLimited() bool {
	arena.Lock()
	defer arena.Unlock()
	return arena.limited
}
