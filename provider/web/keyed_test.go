package web_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/faas-infer/faas-infer/provider/web"
)

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	var k web.KeyedMutex
	one := k.Lock("one")
	two := k.Lock("two")
	three, four := k.Share("three"), k.Share("three")
	if k.Len() != 3 {
		t.Errorf("%d keys are in use", k.Len())
	}
	for _, unlock := range []func(){one, two, three, four} {
		unlock()
	}
	if k.Len() != 0 {
		t.Errorf("%d keys are left", k.Len())
	}
}

// Lock waits for all callers that share the key, and Share waits for the one that holds
// it alone.
func TestAloneOrShared(t *testing.T) {
	var k web.KeyedMutex
	var released atomic.Bool
	first, second := k.Share("key"), k.Share("key")
	alone, shared := make(chan func()), make(chan func())
	go func() {
		unlock := k.Lock("key")
		if !released.Load() {
			t.Error("alone, while another shares")
		}
		alone <- unlock
	}()
	first()
	released.Store(true)
	second()
	unlock := <-alone
	released.Store(false)
	go func() {
		unlock := k.Share("key")
		if !released.Load() {
			t.Error("shared, while one is alone")
		}
		shared <- unlock
	}()
	released.Store(true)
	unlock()
	(<-shared)()
	if k.Len() != 0 {
		t.Errorf("%d keys are left", k.Len())
	}
}

// At any time a key is held by one caller alone or shared by others, and no key is left
// in the end.
func TestMany(t *testing.T) {
	var k web.KeyedMutex
	var alone, sharing [3]atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 500 {
				at := (n + i) % 3
				key := fmt.Sprint("key", at)
				if (n*i)%4 == 0 {
					unlock := k.Lock(key)
					if alone[at].Add(1) != 1 || sharing[at].Load() != 0 {
						t.Errorf("%s is not one's alone", key)
					}
					alone[at].Add(-1)
					unlock()
					continue
				}
				unlock := k.Share(key)
				sharing[at].Add(1)
				if alone[at].Load() != 0 {
					t.Errorf("%s is shared with one who has it alone", key)
				}
				sharing[at].Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if k.Len() != 0 {
		t.Errorf("%d keys are left", k.Len())
	}
}
