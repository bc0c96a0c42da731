package web

import "sync"

// KeyedMutex is a lock for each key that is in use. It can be held by one alone,
// or shared.
type KeyedMutex struct {
	mu    sync.Mutex
	locks map[string]*counted
}

type counted struct {
	sync.RWMutex
	users int
}

// Lock takes the key's lock and returns what lets it go.
func (k *KeyedMutex) Lock(key string) (unlock func()) {
	l := k.enter(key)
	l.Lock()
	return func() {
		l.Unlock()
		k.leave(key, l)
	}
}

// Share takes the key's lock together with all others that share it, and
// returns what lets it go.
func (k *KeyedMutex) Share(key string) (unlock func()) {
	l := k.enter(key)
	l.RLock()
	return func() {
		l.RUnlock()
		k.leave(key, l)
	}
}

func (k *KeyedMutex) enter(key string) *counted {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.locks[key]
	if !ok {
		l = &counted{}
		if k.locks == nil {
			k.locks = map[string]*counted{}
		}
		k.locks[key] = l
	}
	l.users++
	return l
}

func (k *KeyedMutex) leave(key string, l *counted) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}

// Len is how many keys are in use.
func (k *KeyedMutex) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
