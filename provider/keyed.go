package provider

import "sync"

// keyedMutex is a lock for each key that is in use. It can be held by one alone,
// or shared.
type keyedMutex struct {
	mu    sync.Mutex
	locks map[string]*countedMutex
}

type countedMutex struct {
	sync.RWMutex
	users int
}

// lock takes the key's lock and returns what lets it go.
func (k *keyedMutex) lock(key string) (unlock func()) {
	l := k.enter(key)
	l.Lock()
	return func() {
		l.Unlock()
		k.leave(key, l)
	}
}

// share takes the key's lock together with all others that share it, and
// returns what lets it go.
func (k *keyedMutex) share(key string) (unlock func()) {
	l := k.enter(key)
	l.RLock()
	return func() {
		l.RUnlock()
		k.leave(key, l)
	}
}

func (k *keyedMutex) enter(key string) *countedMutex {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.locks[key]
	if !ok {
		l = &countedMutex{}
		if k.locks == nil {
			k.locks = map[string]*countedMutex{}
		}
		k.locks[key] = l
	}
	l.users++
	return l
}

func (k *keyedMutex) leave(key string, l *countedMutex) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
